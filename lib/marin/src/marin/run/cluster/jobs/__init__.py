"""The jobs of a cluster: their files saved, and the jobs submitted again after a restart."""
