"""Find Python programs, read requirements, run uv and explain its errors.

Here belongs what both client and worker need; nothing here knows a cluster.
"""
