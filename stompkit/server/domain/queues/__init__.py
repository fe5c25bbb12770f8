"""Queues, and who gets their messages."""
