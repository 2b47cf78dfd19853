"""Find new text in a growing text that may be truncated at the start."""

SKIPPED = "\n[output skipped]\n"
_KNOWN_CHARACTERS = 4096
_LEAST_OVERLAP = 32
_HALF_A_CHARACTER = "\N{REPLACEMENT CHARACTER}"


class GrowingText:
    """Find the text added since the last call.

    Long texts may be truncated at the start, so new text is found by the last characters seen.
    """

    def __init__(self) -> None:
        self._shown = 0
        self._first = ""
        self._last = ""

    def take_new(self, text: str, *, ended: bool = False) -> str:
        """Return the new text. Until the text has `ended`, keep back incomplete characters."""
        if not ended:
            text = text.rstrip(_HALF_A_CHARACTER)
        if len(text) < self._shown and text.startswith(self._first[: len(text)]):
            return ""  # as it was some time ago
        begin = self._find_new(text)
        self._shown = len(text)
        self._first = text[:_KNOWN_CHARACTERS]
        self._last = text[-_KNOWN_CHARACTERS:]
        return text[begin:] if begin is not None else SKIPPED + text

    def _find_new(self, text: str) -> int | None:
        """Return the offset of the first unseen text; None if the old end is not found."""
        if text.startswith(self._last, max(0, self._shown - len(self._last))):
            return self._shown
        if (found := text.rfind(self._last)) >= 0:
            return found + len(self._last)
        # Perhaps the text now begins within what is known to have been seen.
        overlaps = range(len(self._last) - 1, _LEAST_OVERLAP - 1, -1)
        return next((length for length in overlaps if text.startswith(self._last[-length:])), None)
