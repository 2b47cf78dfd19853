"""`map_files`: a function over many files, run by a few long-lived jobs that pull batches from one queue.

Decisions are in `state` (pure). Jobs are submitted through fray.
"""
