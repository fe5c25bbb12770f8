"""Settings of a broker: data, reading and checks."""
