"""The slices of a cluster file on this machine: one worker process per host, started on demand.

`slices` and `demand` decide (pure), `keeper` acts.
"""
