"""`iris job`: run commands as jobs; list, follow and stop them. One file a command; the client does the work."""
