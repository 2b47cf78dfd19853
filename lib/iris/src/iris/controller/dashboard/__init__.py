"""The controller's side of the dashboard: change notifications, metrics, the process that serves the pages.

The pages are in `iris.dashboard`.
"""
