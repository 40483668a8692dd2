"""Maximum flows, what they prove, and the moves they make."""
