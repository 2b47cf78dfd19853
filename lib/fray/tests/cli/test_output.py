import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from fray.cli.main import SKIPPED, LogFollower


def shown(texts: Sequence[str]) -> str:
    """The output shown after looks at these logs, the last after the job's end."""
    job: Any = SimpleNamespace(logs=iter(texts).__next__)
    to = io.StringIO()
    follower = LogFollower(job, to)
    for _ in texts[1:]:
        follower.show()
    follower.show(ended=True)
    return to.getvalue()


LINES = "".join(f"line {i}\n" for i in range(3000))


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["", "a", "a", "abc"], "abc"),
        # Written in two parts.
        (["1 \ufffd", "1 \u20ac", "1 \u20ac 2"], "1 \u20ac 2"),
        # Never completed.
        (["1 \ufffd", "1 \ufffd"], "1 \ufffd"),
        (["1 \ufffd", "1 \ufffd 2", "1 \ufffd 2 \ufffd"], "1 \ufffd 2 \ufffd"),
        # The beginning is gone, of what was shown and of what was not.
        ([LINES[:20000], LINES[9000:22000], LINES[9500:22500], LINES], LINES),
        ([LINES[:9000], LINES[15000:20000], LINES[16000:21000]], LINES[:9000] + SKIPPED + LINES[15000:21000]),
        # A look at an older state.
        (["abc", "ab", "", "abcd"], "abcd"),
    ],
)
def test_all_is_shown_once(texts: list[str], told: str) -> None:
    assert shown(texts) == told
