"""Runs of the cases: the command line, the processes, and the results."""
