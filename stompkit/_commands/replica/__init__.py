"""The command ``stompkit replica``."""
