"""Checks running attempts: health commands, progress and stalls.

`rules` evaluates the checks (pure); `attempts` stops the attempts.
"""
