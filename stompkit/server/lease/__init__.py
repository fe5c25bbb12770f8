"""The lease of a store: of several brokers, the one that has it is active."""
