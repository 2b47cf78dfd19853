"""Sessions of workers, and their pending orders.

`iris.core` determines the orders; `services` converts messages.
"""
