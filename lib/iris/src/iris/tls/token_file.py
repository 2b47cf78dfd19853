"""Reads files that contain a token, and checks whether other users can access them."""

import codecs
import os
from pathlib import Path
from typing import Final

from rigging.errors import InvalidRequest, MarinError

_OTHER_TEXT: Final = ((codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16"))
_OTHERS: Final = 0o077


def read_token_file(path: str) -> str:
    """Return the token in a file, ignoring a byte order mark.

    Raises:
        MarinError: The file cannot be read.
        InvalidRequest: The file is empty, or does not contain exactly one token. The error does not repeat the content.
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
        raise InvalidRequest(
            f"the token file {path!r} is not text: it must contain one token and nothing else"
        ) from None
    if not words:
        raise InvalidRequest(f"the token file {path!r} is empty: write the token into it, or name another file")
    if len(words) > 1:
        raise InvalidRequest(
            f"the token file {path!r} holds {len(words)} words: it must contain one token and nothing else"
        )
    return words[0]


def privacy_warning(path: str) -> str:
    """Return a warning if other users can read or change a token file; empty otherwise.

    Args:
        path: The file, which may be missing.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return ""
    if not mode & _OTHERS:
        return ""
    who = "other users of this machine may read or change"
    return f"{who} the token file {path} (mode {mode & 0o777:o}): chmod 600 {path}"
