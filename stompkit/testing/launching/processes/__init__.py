"""Processes of brokers: their start, their end, and the removal of their folders."""
