"""Definitions of tables: the catalogue, and statements that change them."""
