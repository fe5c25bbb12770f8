"""Tools to test, observe and measure a broker."""
