"""A step's config: its placeholders, the walk through it, its encoding, copies, and instantiation for the function."""
