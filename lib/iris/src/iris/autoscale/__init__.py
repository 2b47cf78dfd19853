"""Creates and deletes slices for pending jobs.

`demand`, `plan` and `closures` decide (pure); `runtime` carries out; providers make slices behind `port`.
"""
