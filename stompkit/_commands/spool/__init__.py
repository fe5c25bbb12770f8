"""The command ``stompkit spool``."""
