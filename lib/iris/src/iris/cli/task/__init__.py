"""`iris task`: commands for one task. One file per command; the client does the work."""
