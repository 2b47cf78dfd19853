"""Access to running tasks: commands inside them."""
