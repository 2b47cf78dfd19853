"""Whether what runs is well: health commands, and progress that tasks report."""
