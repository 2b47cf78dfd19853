"""The shown part of a job's log: a log that is read again from its beginning shows only the rest."""

import hashlib
from collections.abc import Callable


class ShownLog:
    """The part of a log that was shown: its length in characters and its digest, not the text itself."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._digest = hashlib.sha256()
        self.length = 0

    def show(self, text: str) -> None:
        """Show more of the log."""
        self._digest.update(_encoded(text))
        self.length += len(text)
        self._write(text)

    def digest(self) -> str:
        """Return the digest of the text that was shown."""
        return self._digest.hexdigest()


class Rereader:
    """Reads a log from its beginning, and shows what was not shown before.

    Args:
        shown: Must be shown to by this reader alone, until the next one is made.
    """

    def __init__(self, shown: ShownLog) -> None:
        self._shown = shown
        self._left = shown.length
        self._expected = shown.digest()
        self._digest = hashlib.sha256()
        self.differs = False

    @property
    def is_short(self) -> bool:
        """Whether less has been read than was shown before."""
        return self._left > 0

    def feed(self, text: str) -> int:
        """Read on; returns how many characters of it were new, and shown."""
        known, new = text[: self._left], text[self._left :]
        if known:
            self._digest.update(_encoded(known))
            self._left -= len(known)
            self.differs = self._left == 0 and self._digest.hexdigest() != self._expected
        if new:
            self._shown.show(new)
        return len(new)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogatepass")
