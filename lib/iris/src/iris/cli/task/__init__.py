"""The `iris task` command."""
