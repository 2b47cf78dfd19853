"""The cluster's pages in a browser: a process beside the controller, and its client. Needs the extra `dashboard`.

Here belong pages and their queries; nothing here changes the controller except through its RPCs.
"""
