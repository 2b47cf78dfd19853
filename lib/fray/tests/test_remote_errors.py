import subprocess
import traceback

import pytest

from fray.errors import JobFailed
from fray.remote_errors import RemoteTraceback, pack_error, unpack_error


def travelled(error: BaseException) -> BaseException:
    try:
        raise error
    except type(error) as raised:
        return unpack_error(pack_error(raised), "job 'x'")


class Demanding(Exception):
    """Cannot be made again from its text."""

    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(f"{code}: {reason}")


class Stubborn(Exception):
    """Refuses to be pickled with something that nobody expects."""

    def __reduce__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "error",
    [
        LookupError("no shard"),
        OSError(2, "No such file", "a.txt"),
        subprocess.CalledProcessError(3, ["sh"]),
        JobFailed("inner", job_id="j", exit_code=4),
    ],
)
def test_an_exception_comes_back_as_it_was(error: BaseException) -> None:
    back = travelled(error)
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.__dict__ == error.__dict__
    assert isinstance(back.__cause__, RemoteTraceback)
    assert "in travelled" in "".join(traceback.format_exception(back))


@pytest.mark.parametrize("error", [Demanding(5, reason="because"), Stubborn("because")])
def test_one_that_cannot_travel_is_told_in_words(error: BaseException) -> None:
    back = travelled(error)
    assert type(back) is JobFailed
    assert str(back).startswith("job 'x': ")
    assert type(error).__name__ in str(back)
    assert "because" in str(back)
    assert isinstance(back.__cause__, RemoteTraceback)


def test_the_causes_there_are_shown_here() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as error:
        back = unpack_error(pack_error(error), "job 'x'")
    shown = "".join(traceback.format_exception(back))
    assert "KeyError: 'inner'" in shown
    assert "direct cause" in shown
