"""Sessions of workers, and the orders that wait for them.

`iris.core` decides the orders; `services` converts messages.
"""
