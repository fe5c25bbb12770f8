"""Decoding of the binary log: packets, events, rows and values."""
