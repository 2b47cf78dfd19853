"""Accept, prepare, start, observe, end and forget the attempts of tasks.

`machine` makes the decisions (pure); `supervisor` carries them out.
"""
