"""Sessions of workers, and the orders that wait for them."""
