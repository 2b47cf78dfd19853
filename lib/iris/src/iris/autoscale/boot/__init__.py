"""Starts workers on new machines: the release that they install, and the script that installs it."""
