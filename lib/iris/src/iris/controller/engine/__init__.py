"""The engine: applies events in batches, with one transaction per batch, then carries out the effects.

The order of events and the commits belong here. The consequences of an event are in `iris.core.rules`.
"""
