"""`map_files`: a function over many files, as few long-lived jobs that pull batches of files from one queue."""
