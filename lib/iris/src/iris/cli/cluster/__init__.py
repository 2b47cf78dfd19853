"""`iris cluster`: start, inspect and stop clusters.

One file a command; decisions are `iris.local`'s or the controller's.
"""
