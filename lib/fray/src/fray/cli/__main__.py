"""`python -m fray.cli`: the `fray` command."""

from fray.cli.main import main

main()
