import subprocess
import threading
import traceback

import pytest

from fray.errors import JobFailed
from fray.sending.remote_errors import RemoteTraceback, pack_error, unpack_error


def travelled(error: BaseException) -> BaseException:
    try:
        raise error
    except type(error) as raised:
        return unpack_error(pack_error(raised), "job 'x'")


class Demanding(Exception):
    """Its constructor cannot be called with its `args`, or makes another text of them."""

    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code


class DiskFull(OSError):
    """Keeps what it knows in its built-in base."""

    def __init__(self, path: str) -> None:
        super().__init__(28, "No space left", path)


class Undecodable(UnicodeDecodeError):
    """Likewise, and the base has no `args` for it alone."""

    def __init__(self, data: bytes) -> None:
        super().__init__("utf-8", data, 0, 1, "not text")
        self.add_note("of shard 3")


class Several(ExceptionGroup[Exception]):
    """A group with a constructor of its own."""

    def __new__(cls, *errors: Exception) -> "Several":
        return super().__new__(cls, "several", list(errors))


class Holding(Exception):
    """Cannot be sent, for what it holds."""

    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(reason)
        self.lock = threading.Lock()


class Selfmade(Exception):
    """Holds what cannot be sent, and knows what to do about it."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return Selfmade, (self.where,)


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
        Demanding(5, reason="because"),
        DiskFull("a.txt"),
        Undecodable(b"\xff"),
        Several(KeyError("a"), ValueError("b")),
    ],
)
def test_an_exception_comes_back_as_it_was(error: BaseException) -> None:
    back = travelled(error)
    assert type(back) is type(error)
    assert (str(back), repr(back)) == (str(error), repr(error))
    assert back.__dict__ == error.__dict__
    assert isinstance(back.__cause__, RemoteTraceback)
    assert "in travelled" in "".join(traceback.format_exception(back))


def test_members_of_groups_come_back_as_they_were() -> None:
    odd = Demanding(5, reason="because")
    odd.add_note("of shard 3")
    inner = Several(Demanding(7, reason="why"), DiskFull("a.txt"))
    back = travelled(BaseExceptionGroup("outer", [odd, inner, KeyError("a"), KeyboardInterrupt(), Selfmade("here")]))
    assert isinstance(back, BaseExceptionGroup)
    kinds = [Demanding, Several, KeyError, KeyboardInterrupt, Selfmade]
    assert [type(member) for member in back.exceptions] == kinds
    assert back.exceptions[0].__dict__ == {"code": 5, "__notes__": ["of shard 3"]}
    assert isinstance(back.exceptions[1], Several)
    assert [type(member) for member in back.exceptions[1].exceptions] == [Demanding, DiskFull]
    assert repr(back.exceptions[1].exceptions) == repr(inner.exceptions)
    assert isinstance(back.exceptions[4], Selfmade)
    assert back.exceptions[4].where == "here", "one that makes itself again does"


@pytest.mark.parametrize("error", [Holding(5, reason="because"), Stubborn("because")])
def test_one_that_cannot_travel_is_told_in_words(error: BaseException) -> None:
    back = travelled(error)
    assert type(back) is JobFailed
    assert str(back).startswith("job 'x': ")
    assert type(error).__name__ in str(back)
    assert "because" in str(back)
    assert isinstance(back.__cause__, RemoteTraceback)
