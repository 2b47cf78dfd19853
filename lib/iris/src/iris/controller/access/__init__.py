"""Authentication and authorization: one rule per RPC, tokens, and the interceptor that applies them.

Services only filter the entries of a list that the caller may see.
"""
