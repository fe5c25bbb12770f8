"""Tools for those who test, watch or measure a broker."""
