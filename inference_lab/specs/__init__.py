"""What a line of text may say; nothing is loaded here."""
