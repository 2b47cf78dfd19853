"""The engine: events in, one transaction a batch, then effects."""
