"""Fakes, servers and hosts shared by the tests of the workspace. Import the module that you need."""
