"""Streams of messages: the spool as batches of rows, in the order of their origins."""
