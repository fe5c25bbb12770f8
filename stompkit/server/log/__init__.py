"""The broker's log: its events, their fields, and the formats text and JSON."""
