"""`iris task`: commands for tasks. One file per command. The logic is in the client."""
