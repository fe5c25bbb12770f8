"""Transports: endpoints, TLS, the PROXY protocol and fair scheduling."""
