"""Fakes, servers and hosts that the tests of the workspace share. Import the module that holds what you need."""
