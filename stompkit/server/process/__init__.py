"""The broker process: start, lock, logs, signals and stop."""
