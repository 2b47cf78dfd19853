"""Reading runs, outputs and leases from storage: the edge."""
