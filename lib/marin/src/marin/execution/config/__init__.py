"""A step's config: what may stand in it, how it is walked, copied, encoded, and filled in for the step's function."""
