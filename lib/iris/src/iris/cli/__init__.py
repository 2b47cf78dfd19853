"""The command line: `iris <noun> <verb>`, a user of the same client API that everybody has."""
