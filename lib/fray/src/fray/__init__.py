"""One client for jobs and actors, whatever runs them."""
