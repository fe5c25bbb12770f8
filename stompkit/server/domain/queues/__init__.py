"""Queues, and the dispatching of their messages."""
