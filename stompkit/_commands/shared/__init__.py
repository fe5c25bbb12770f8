"""Shared by commands: options, sessions with a broker, and output."""
