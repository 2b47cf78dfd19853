"""Authentication and authorization: one rule per RPC, tokens, and the interceptor that applies them.

Services only filter which entries of a list the caller may see.
"""
