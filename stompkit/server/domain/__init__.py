"""The broker without transport: hosts, destinations and what happens to frames."""
