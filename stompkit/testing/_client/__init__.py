"""How the blocking client works."""
