"""A real Slurm for tests, in a mount namespace of its own."""
