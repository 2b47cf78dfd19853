"""`python marin/run/ray_run.py -- COMMAND`, from the repository's root: the same as `python -m marin.run.ray_run`.

This folder has no __init__.py, so that `import marin` goes on finding the installed package from here.
"""

import sys

from marin.run.ray_run import main

if __name__ == "__main__":
    sys.exit(main())
