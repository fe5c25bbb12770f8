"""The store in PostgreSQL, with psycopg."""
