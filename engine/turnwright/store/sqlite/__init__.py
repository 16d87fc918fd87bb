"""The store in SQLite files."""
