"""Pipeline work in SQL databases: sessions, staging, fences and versions of rows."""
