"""The base of all marin libraries: storage prefixes, leases, clocks, backoff, logging, errors."""
