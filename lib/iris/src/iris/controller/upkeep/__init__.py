"""Retention, users' accounts, and leaving when idle."""
