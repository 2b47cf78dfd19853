"""The controller's side of the dashboard: change notifications, its own figures, the serving process.

Pages are `iris.dashboard`.
"""
