"""A server of a spool, for readers on machines without its folder."""
