"""Reading runs, outputs and leases from storage: the edge of the command line."""
