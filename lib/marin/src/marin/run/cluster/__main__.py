"""python -m marin.run.cluster"""

import sys

from marin.run.cluster.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
