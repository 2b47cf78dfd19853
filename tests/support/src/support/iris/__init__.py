"""Fakes for tests of iris and its users. Each speaks the real protocol."""
