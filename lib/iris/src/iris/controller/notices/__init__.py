"""Telling others of the ends of jobs: what is owed, and its delivery."""
