"""The command line of an experiment's script, and the explanation of what it would run."""
