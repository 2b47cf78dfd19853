"""What every marin library stands on: storage prefixes, leases, clocks, backoff, logging, errors."""
