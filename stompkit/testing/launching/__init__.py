"""Launching and control of brokers."""
