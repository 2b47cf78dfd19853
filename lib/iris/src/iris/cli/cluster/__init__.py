"""`iris cluster`: start, look at and stop clusters."""
