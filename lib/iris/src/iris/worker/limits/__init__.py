"""Holds attempts to limits of their host, and measures their use of it."""
