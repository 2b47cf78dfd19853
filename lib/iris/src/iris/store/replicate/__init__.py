"""The state off the machine: what is there (layout), keeping it up to date (replicator), getting it back (restore)."""
