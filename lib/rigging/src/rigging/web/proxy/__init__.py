"""Forward requests to users' servers behind the login, from a separate origin.

The caller decides which servers exist.
"""
