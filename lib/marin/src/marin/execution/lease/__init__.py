"""The lease and the status of an output path: which attempt may write it, whether it is there, and fenced writes."""
