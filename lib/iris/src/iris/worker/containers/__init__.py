"""Runs attempts in containers, by the command line of podman or docker."""
