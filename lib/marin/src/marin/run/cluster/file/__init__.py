"""Cluster files: the settings that they are made from, what is wrong in them, what a change means."""
