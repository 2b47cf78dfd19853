"""The process that holds the tasks and their output, and outlives the worker process."""
