"""The machine that the worker runs on: its resources, its address, its end.

For code that inspects the host; the usage of attempts is in `limits`.
"""
