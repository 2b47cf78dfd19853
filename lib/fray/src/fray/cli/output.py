"""Showing a job's log while it grows."""

from typing import TextIO

from fray.client import JobHandle

SKIPPED = "\n[output skipped]\n"
_KNOWN_CHARACTERS = 4096
_LEAST_OVERLAP = 32
_HALF_A_CHARACTER = "\N{REPLACEMENT CHARACTER}"


class LogFollower:
    """Writes what a job has logged since the last look.

    A backend may keep only the end of a long log: what comes next is found by the last characters that were shown.

    Args:
        job: Whose log.
        to: Where it goes.
    """

    def __init__(self, job: JobHandle, to: TextIO) -> None:
        self._job = job
        self._to = to
        self._shown = 0
        self._first = ""
        self._last = ""

    def show(self, *, ended: bool = False) -> None:
        """Write what is new; a character of which only a part was logged waits for its rest until the job `ended`."""
        text = self._job.logs()
        if not ended:
            text = text.rstrip(_HALF_A_CHARACTER)
        if len(text) < self._shown and text.startswith(self._first[: len(text)]):
            return  # as it was some time ago
        begin = self._find_new(text)
        new = text[begin:] if begin is not None else SKIPPED + text
        self._to.write(new)
        self._to.flush()
        self._shown = len(text)
        self._first = text[:_KNOWN_CHARACTERS]
        self._last = text[-_KNOWN_CHARACTERS:]

    def _find_new(self, text: str) -> int | None:
        """Where what was not shown yet begins; None when it does not join on to what was."""
        if text.startswith(self._last, max(0, self._shown - len(self._last))):
            return self._shown
        if (found := text.rfind(self._last)) >= 0:
            return found + len(self._last)
        # Perhaps the log now begins within what is known to have been shown.
        overlaps = range(len(self._last) - 1, _LEAST_OVERLAP - 1, -1)
        return next((length for length in overlaps if text.startswith(self._last[-length:])), None)
