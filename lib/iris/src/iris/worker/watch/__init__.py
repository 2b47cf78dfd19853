"""Health of running attempts: health commands, progress and stalls.

`rules` decides (pure); stopping an attempt is `attempts`.
"""
