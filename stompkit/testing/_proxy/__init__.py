"""What the proxy does to what passes through it."""
