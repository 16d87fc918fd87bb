"""Hiding secrets, and showing invisible characters."""
