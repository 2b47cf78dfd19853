"""Runs, outputs and leases as storage has them: read (`reading`), and decided upon (`deciding`)."""
