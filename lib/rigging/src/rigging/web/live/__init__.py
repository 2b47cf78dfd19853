"""Many event streams of a browser's tabs over one connection."""
