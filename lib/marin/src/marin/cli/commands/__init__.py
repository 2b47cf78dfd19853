"""The commands, one file each: what they read, and what they print."""
