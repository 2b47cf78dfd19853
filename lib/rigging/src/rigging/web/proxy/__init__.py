"""Forward requests to users' servers behind the login, as an application with a separate origin.

The caller decides which servers exist.
"""
