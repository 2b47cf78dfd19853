"""`iris job`: run, list, follow and stop jobs. One file per command; the client does the work."""
