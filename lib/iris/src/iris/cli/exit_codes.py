"""Exit codes of the command line, and their errors.

`iris job run` exits with the code of its command (128 + n for signal n), which may equal one of these codes. A line on
stderr always states the cause.
"""

from typing import Final

from rigging.exit_codes import BROKEN_PIPE as BROKEN_PIPE
from rigging.exit_codes import FAILURE as FAILURE
from rigging.exit_codes import INTERRUPTED as INTERRUPTED
from rigging.exit_codes import NOT_FOUND as NOT_FOUND
from rigging.exit_codes import OK as OK
from rigging.exit_codes import REFUSED as REFUSED
from rigging.exit_codes import UNREACHABLE as UNREACHABLE
from rigging.exit_codes import USAGE as USAGE
from rigging.exit_codes import exit_code_of as exit_code_of

GONE_WHILE_WAITING: Final = 6
TIME_IS_UP: Final = 7
NOT_SUCCEEDED: Final = 8
