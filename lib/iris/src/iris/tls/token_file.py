"""Files that contain a token: reading them, and checking who else can access them."""

import codecs
import os
from pathlib import Path
from typing import Final

from rigging.errors import InvalidRequest, MarinError

_OTHER_TEXT: Final = ((codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16"))
_OTHERS: Final = 0o077


def read_token_file(path: str) -> str:
    """Return the token in a file; a byte order mark before it is ignored.

    Raises:
        MarinError: The file cannot be read.
        InvalidRequest: It is empty, or contains something other than one token. The content is not repeated.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise MarinError(f"cannot read the token file {path!r}: {error.strerror}") from None
    return token_in(content, path)


def token_in(content: bytes, path: str) -> str:
    """Return the token in a file's content. Raises InvalidRequest like `read_token_file`.

    Args:
        content: The file's content.
        path: The file, for messages.
    """
    for mark, name in _OTHER_TEXT:
        if content.startswith(mark):
            raise InvalidRequest(
                f"the token file {path!r} is {name} text, as some editors and shells write: save it as UTF-8"
            )
    try:
        words = content.removeprefix(codecs.BOM_UTF8).decode().split()
    except UnicodeDecodeError:
        raise InvalidRequest(f"the token file {path!r} is no text: it must hold a token and nothing else") from None
    if not words:
        raise InvalidRequest(f"the token file {path!r} is empty: write the token into it, or name another file")
    if len(words) > 1:
        raise InvalidRequest(f"the token file {path!r} holds {len(words)} words: it must hold a token and nothing else")
    return words[0]


def privacy_warning(path: str) -> str:
    """Return a warning if other users may read or change a token file; empty if they may not.

    Args:
        path: The file; a missing one is not reported.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return ""
    if not mode & _OTHERS:
        return ""
    who = "other users of this machine may read or change"
    return f"{who} the token file {path} (mode {mode & 0o777:o}): chmod 600 {path}"
