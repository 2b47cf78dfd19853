"""The engine: events in, one transaction per batch, then effects.

Order and commits belong here. The consequences of an event are in `iris.core.rules`.
"""
