"""`iris job`: run commands as jobs; list, follow and stop them."""
