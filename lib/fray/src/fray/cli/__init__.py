"""The `fray` command: see `fray.cli.main`."""
