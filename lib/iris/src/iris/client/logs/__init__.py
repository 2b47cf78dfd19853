"""Fetch, follow and print the output of jobs."""
