"""Runs of a job: locks, checkpoints, and where a query begins."""
