"""Webhooks for the ends of jobs: pending notices, messages, delivery.

Only notices to other services belong here. Pages and clients are notified elsewhere.
"""
