"""The cluster in memory: `ClusterView`, its tables and indexes, and changes of it."""
