"""Environment files (`.env`). They are read completely or refused, and never quoted."""

import io
import os
import re
import select
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rigging.errors import InvalidRequest
from rigging.text.printable import printable

if TYPE_CHECKING:
    from dotenv.parser import Binding

LocalPath = str | os.PathLike[str]

_MOST_BYTES: Final = 1 << 20
_WRITER_SECONDS: Final = 5.0
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ALLOWED: Final = "a line is NAME=value, NAME='value', NAME=\"value\", empty, or a # comment"
_REMEDY: Final = "chmod o-w it if you trust what is in it"


class BadEnvFile(InvalidRequest):
    """An environment file is missing or malformed. The message contains none of its values."""


def read_env_files(paths: Iterable[LocalPath], *, writer_seconds: float = _WRITER_SECONDS) -> dict[str, str]:
    """Return the variables of environment files. If a name occurs several times, the last one wins.

    The format is python-dotenv's: `export` before a name, quotes, `\\n` in double quotes, multi-line values in quotes,
    comments. A `$NAME` in a value stays literal. No error and no log quotes a value.

    Args:
        paths: Local files or pipes. Later ones win.
        writer_seconds: How long to wait for a writer of a named pipe.

    Raises:
        BadEnvFile: A file is missing, is world-writable, is a pipe without a writer, or has an invalid line. The
            message names the file and line.
    """
    found: dict[str, str] = {}
    for path in paths:
        found.update(_variables(_text_of(path, writer_seconds), _shown(path)))
    return found


@contextmanager
def variables_in_force(variables: Mapping[str, str]) -> Iterator[None]:
    """Context manager: set these variables in this process's environment, and restore the old ones at the end.

    A variable that other code changed meanwhile keeps that change.
    """
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if os.environ.get(name) != variables[name]:
                continue
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _text_of(path: LocalPath, writer_seconds: float) -> str:
    shown = _shown(path)
    try:
        # The checks are made on the open file, not on its name. A pipe, as of `<(...)`, is read to its end.
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            wrong = _wrong_with(status)
            first = _first_of_pipe(file.fileno(), writer_seconds) if stat.S_ISFIFO(status.st_mode) else b""
            if first is None:
                wrong = "it is a named pipe without a writer"
            os.set_blocking(file.fileno(), True)
            data = (first or b"") + file.read(_MOST_BYTES + 1) if wrong is None else b""
    except (OSError, ValueError) as error:  # ValueError: a name with NUL
        raise BadEnvFile(f"env file {shown}: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > _MOST_BYTES:
        wrong = f"it has more than {_MOST_BYTES} bytes"
    if wrong is not None:
        raise BadEnvFile(f"env file {shown}: {wrong}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadEnvFile(f"env file {shown}, line {line}: it is not UTF-8") from None


def _open_at_once(path: str, flags: int) -> int:
    # To open a named pipe that nobody writes into would wait for ever.
    return os.open(path, flags | os.O_NONBLOCK)


def _first_of_pipe(pipe: int, seconds: float) -> bytes | None:
    """Wait up to `seconds` for data in a pipe and return it; None if it never had a writer."""
    waiting = select.poll()
    waiting.register(pipe, select.POLLIN)
    if waiting.poll(1000 * seconds):
        return b""  # something is in it, or it has ended: its writer was there
    try:
        return os.read(pipe, 1) or None
    except BlockingIOError:
        return b""  # it has a writer, such as a program that asks its user for a password first


def _wrong_with(status: os.stat_result) -> str | None:
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)):
        return "it is neither a file nor a pipe"
    if stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IWOTH:
        return f"it has mode {stat.S_IMODE(status.st_mode):03o}, so everybody can write it: {_REMEDY}"
    return None


def _variables(text: str, shown: str) -> dict[str, str]:
    from dotenv.parser import parse_stream

    found: dict[str, str] = {}
    for binding in parse_stream(io.StringIO(text, newline="")):
        # The parser takes the empty lines before a line for its beginning.
        line = binding.original.line + _lines_before(binding.original.string)
        if binding.error:
            raise BadEnvFile(f"env file {shown}, line {line}: {_ALLOWED}")
        if binding.key is None:
            continue
        problem = _problem(binding)
        if problem is not None:
            raise BadEnvFile(f"env file {shown}, line {line}: {problem}")
        found[binding.key] = binding.value or ""
    return found


def _problem(binding: "Binding") -> str | None:
    """Describe the problem of a line, without its value. A line that is only a value is not quoted either."""
    if binding.value is None:
        return f"there is no '='; {_ALLOWED}"
    if binding.key is None or not _NAME.fullmatch(binding.key):
        return "the text before '=' is not a valid name: use A-Z a-z 0-9 _, not beginning with a digit"
    if "\0" in binding.value:
        return f"the value of {binding.key} has a NUL"
    return None


def _lines_before(text: str) -> int:
    lead = text[: len(text) - len(text.lstrip())]
    return len(re.findall(r"\r\n|\n|\r", lead))


def _shown(path: LocalPath) -> str:
    return printable(os.fspath(path))
