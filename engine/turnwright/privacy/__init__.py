"""Redacts secrets, and makes invisible characters visible."""
