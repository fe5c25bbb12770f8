"""Internals of the proxy: rules and the traffic that they change."""
