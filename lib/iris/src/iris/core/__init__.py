"""The decision core: the consequences of an event.

Pure: no I/O, no clock, no threads. Nothing here knows how events arrive or how effects are carried out.
"""
