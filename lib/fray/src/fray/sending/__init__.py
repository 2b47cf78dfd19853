"""Callables, arguments and exceptions sent to another process, on every backend.

Only pickling belongs here. The backend decides which process receives the bytes.
"""
