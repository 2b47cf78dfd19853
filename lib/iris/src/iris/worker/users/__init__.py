"""Gives each user's tasks a uid (`--task-users`)."""
