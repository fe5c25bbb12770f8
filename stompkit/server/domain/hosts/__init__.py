"""Virtual hosts: destinations, and the routing of messages between them."""
