"""A uid for each user's tasks (`--task-users`): who they are on this host, and what that needs.

Modes of single files are set where the files are made.
"""
