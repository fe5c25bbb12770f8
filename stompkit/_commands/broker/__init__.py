"""Commands that run, configure and maintain a broker."""
