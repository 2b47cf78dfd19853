"""Webhooks for ends of jobs: what is owed, its message, its delivery.

Here belongs telling other services; pages and clients are told elsewhere.
"""
