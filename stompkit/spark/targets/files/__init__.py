"""Tables in files: plans of tasks, and rewriting of files by the driver."""
