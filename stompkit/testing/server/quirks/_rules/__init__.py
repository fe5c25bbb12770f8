"""What the rules say, apart from how they are kept."""
