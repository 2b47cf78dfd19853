"""Code that runs inside Ray's worker processes."""
