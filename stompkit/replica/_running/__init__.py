"""Running of a replica in a process: lease, calls of the engine's thread, periodic tasks."""
