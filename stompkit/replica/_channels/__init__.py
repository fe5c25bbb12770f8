"""Channels of a replica: topics of brokers, and the connections to them."""
