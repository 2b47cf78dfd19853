"""Processes that outlive what started them: found, attributed to their attempt, ended.

Here belongs what looks at /proc and control groups for this; the life of an attempt itself is the guardian's.
"""
