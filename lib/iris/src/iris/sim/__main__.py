"""Entry point of `python -m iris.sim`."""

import sys

from iris.sim.cli import main

sys.exit(main(sys.argv[1:]))
