"""Authentication and authorisation of clients."""
