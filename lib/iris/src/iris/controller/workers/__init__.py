"""Sessions of workers, and the orders that wait for them.

What the orders should be is `iris.core`; messages are converted in `services`.
"""
