"""Track the shown part of a job's log, so that re-reading it from the beginning shows only the rest."""

import hashlib
from collections.abc import Callable


class ShownLog:
    """The shown part of a log, as its length in characters and its digest, without the text."""

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
        """Return the digest of the shown text."""
        return self._digest.hexdigest()


class Rereader:
    """Read a log from its beginning, and show only new text.

    Args:
        shown: The shown part. Only this reader may add to it, until there is another reader.
    """

    def __init__(self, shown: ShownLog) -> None:
        self._shown = shown
        self._left = shown.length
        self._expected = shown.digest()
        self._digest = hashlib.sha256()
        self.differs = False

    @property
    def is_short(self) -> bool:
        """Return whether the text read is shorter than the text already shown."""
        return self._left > 0

    def feed(self, text: str) -> int:
        """Read more, show the new characters, and return their number."""
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
