"""Connections to the target: octets, their log, and the first probes."""
