"""The command line `marin COMMAND`, which reads runs and outputs from storage; no server is needed.

One file a command in `commands`. What the pages need too is in `marin.recorded`.
"""
