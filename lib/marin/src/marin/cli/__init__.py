"""The command `marin`, which reads runs and outputs from storage. It needs no server.

`commands` has one file per command. Code shared with the browser pages is in `marin.recorded`.
"""
