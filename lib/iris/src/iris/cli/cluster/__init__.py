"""`iris cluster`: start, inspect and stop clusters.

One file per command. Decisions belong to `iris.local` or the controller.
"""
