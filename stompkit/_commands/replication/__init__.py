"""Commands for change data capture and replication."""
