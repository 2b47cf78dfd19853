"""`python -m fray.cli` is the `fray` command."""

from fray.cli.main import main

main()
