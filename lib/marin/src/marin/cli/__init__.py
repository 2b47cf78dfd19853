"""The command line: `marin COMMAND`, which reads runs and outputs from storage; no server is needed."""
