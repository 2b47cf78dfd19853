"""Health of running attempts: health commands, progress and stalls.

`rules` decides (pure); `attempts` stops attempts.
"""
