"""The machine that the worker runs on: what it offers, its address, its end.

Here belongs what looks at the host; what attempts use of it is `limits`.
"""
