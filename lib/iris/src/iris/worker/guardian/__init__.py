"""What must outlive the worker process: its tasks, and what they write."""
