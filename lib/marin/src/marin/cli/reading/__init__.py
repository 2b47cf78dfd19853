"""What single commands read: names for completion, a script's steps, storage health.

Runs and outputs are read by `marin.recorded.reading`.
"""
