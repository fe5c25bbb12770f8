"""The command ``stompkit pipeline``."""
