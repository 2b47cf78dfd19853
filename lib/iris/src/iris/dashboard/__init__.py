"""The cluster's web pages: a process next to the controller, and its client. Requires the extra `dashboard`.

For pages and their queries; changes to the controller only go through its RPCs.
"""
