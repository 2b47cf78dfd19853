"""Tasks of each user under a uid of their own (`--task-users`): who they are on this host, and what that needs."""
