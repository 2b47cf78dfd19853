"""Finds Python programs, reads requirements, runs uv and explains its errors.

Code for both client and worker, independent of any cluster, belongs here.
"""
