"""Sessions, waits and watches of clients: they are told of ends and changes after the commit."""
