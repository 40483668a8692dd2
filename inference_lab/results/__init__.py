"""What runs leave, and what follows from it, unrendered."""
