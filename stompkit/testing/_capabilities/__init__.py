"""What brokers can do, found out by asking them."""
