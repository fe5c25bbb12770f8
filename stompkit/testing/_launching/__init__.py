"""How brokers are launched, and what is done to them."""
