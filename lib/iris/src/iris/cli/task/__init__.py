"""`iris task`: commands for one task. One file a command; the client does the work."""
