"""The process of a broker: start, lock, logs, signals and stop."""
