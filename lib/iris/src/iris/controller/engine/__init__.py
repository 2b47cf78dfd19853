"""The engine: events in, one transaction a batch, then effects.

Here belong order and commits. What follows from an event is `iris.core.rules`.
"""
