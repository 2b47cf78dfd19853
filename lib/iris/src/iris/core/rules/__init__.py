"""The rules: `reduce` and what it consists of, reconciliation, contact, timeouts."""
