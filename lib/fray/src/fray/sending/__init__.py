"""Callables, arguments and exceptions on their way to another process, on every backend.

Here belongs what pickles; which process it goes to is the backend's affair.
"""
