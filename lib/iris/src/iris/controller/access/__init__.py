"""Authentication and authorization: one rule an RPC, tokens, and the interceptor that applies them.

A service only filters what its caller may see of a list.
"""
