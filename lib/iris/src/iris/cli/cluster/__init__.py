"""`iris cluster`: start, inspect and stop clusters.

One file per command. Decisions belong in `iris.local` or the controller.
"""
