"""Finds Python programs, reads requirements, runs uv and explains its errors.

For what both client and worker need; independent of any cluster.
"""
