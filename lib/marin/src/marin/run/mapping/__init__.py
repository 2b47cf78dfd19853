"""`map_files`: a function over many files, as few long-lived jobs that pull batches from one queue.

`state` decides (pure); jobs go through fray.
"""
