"""Scheduling: the cycle, timers, and time limits of work."""
