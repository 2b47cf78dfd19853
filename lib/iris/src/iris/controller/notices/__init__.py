"""Delivers notices about the ends of jobs to webhooks."""
