"""The run of a plan or of a stream of steps: order, attempts, failures, and the end of an interrupted run."""
