"""Comparison of tables in different databases, for the job *verify*."""
