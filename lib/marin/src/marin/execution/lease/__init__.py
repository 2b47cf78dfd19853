"""The lease and the status of an output path: who may make it, whether it is there, and the fence around its files."""
