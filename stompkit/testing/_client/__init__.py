"""Internals of the blocking client."""
