"""Recorded traffic as text: comparison and replay."""
