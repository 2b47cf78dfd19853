"""Exit codes of the `marin` command. Errors map to those of `rigging.exit_codes`."""

from typing import Final

from rigging.exit_codes import BROKEN_PIPE as BROKEN_PIPE
from rigging.exit_codes import FAILURE as FAILURE
from rigging.exit_codes import INTERRUPTED as INTERRUPTED
from rigging.exit_codes import OK as OK
from rigging.exit_codes import exit_code_of as exit_code_of

#: `lint` found something, `diff --exit-code` a difference, `logs -f` a step that did not succeed, `gc --delete` and
#: `locks clear` named items that they kept.
FOUND: Final = 8
