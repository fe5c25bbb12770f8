"""The command ``stompkit bridge``."""
