"""Processes that outlive their starter: found, attributed to their attempt, killed.

For code that inspects /proc and control groups for this purpose; the guardian handles the attempts themselves.
"""
