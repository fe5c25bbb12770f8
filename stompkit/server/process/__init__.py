"""The broker process: start, lock, signals and stop."""
