"""Commands that replicate changes of databases."""
