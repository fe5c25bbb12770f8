"""Sessions of clients, and what their frames do."""
