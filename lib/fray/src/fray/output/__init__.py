"""The output of jobs, read while it grows.

Only code that backends share belongs here. Each backend fetches the bytes itself.
"""
