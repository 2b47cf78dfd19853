"""The process of an `in_subprocess` call. usage: python -m marin.run.subprocess_child CALL RESULT"""

import sys

from marin.run.subprocess_call import run_child

if __name__ == "__main__":
    sys.exit(run_child(sys.argv[1], sys.argv[2]))
