"""The slices of a cluster file on this machine: one worker process per host, started on demand.

`slices` and `demand` make the decisions (pure); `keeper` carries them out.
"""
