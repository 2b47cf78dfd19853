"""The decision core: the consequences of an event.

Pure: no I/O, no clock, no threads. Callers deliver the events and carry out the effects.
"""
