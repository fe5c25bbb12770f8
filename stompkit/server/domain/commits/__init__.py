"""Commit queues: pending operations for the store."""
