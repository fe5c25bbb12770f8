"""Shared parts of the commands: options, sessions with a broker, and output."""
