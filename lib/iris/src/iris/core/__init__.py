"""The deciding core: what follows from an event. Pure: no I/O, no clock, no threads."""
