"""Fakes for tests of iris and of what is built on it; each speaks the real protocol."""
