"""Client sessions, and the handlers of their frames."""
