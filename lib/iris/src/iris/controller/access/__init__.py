"""Permissions of callers: the rules of all RPCs, and the servers' code that applies them."""
