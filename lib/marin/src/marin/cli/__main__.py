"""`python -m marin.cli`: the `marin` command."""

from marin.cli.entry import main

if __name__ == "__main__":
    main()
