"""Capabilities of brokers, found out by probing them."""
