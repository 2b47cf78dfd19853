"""A uid for each user's tasks (`--task-users`): their identity on this host, and its requirements.

Modes of files are set where the files are created.
"""
