"""The whole suite in parts that run side by side: ``python -m tests.suite --help``."""
