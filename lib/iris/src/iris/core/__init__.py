"""The deciding core: what follows from an event.

Pure: no I/O, no clock, no threads. Nothing here knows how events arrive or effects are carried out.
"""
