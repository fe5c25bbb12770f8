"""Descriptions of the rules; their implementation is elsewhere."""
