"""`iris job`: run, list, follow and stop jobs. One file per command. The logic is in the client."""
