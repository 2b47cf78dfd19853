"""Copying files into the local prefix: once each, whole, verified, and paid for."""
