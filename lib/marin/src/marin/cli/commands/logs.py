"""`marin logs`: the log and the error of a step's output, also while the step runs."""

from __future__ import annotations

import sys

import click

from marin.cli import exit_codes
from marin.cli.context import CliContext, pass_context
from marin.cli.options import STEP, json_option, prefix_option
from marin.cli.output import echo_json, say
from marin.execution.lease.status_words import STATUS_DEP_FAILED, STATUS_RUNNING
from marin.output_files import ERROR_FILE, LOG_FILE, seconds_to_next
from marin.recorded.deciding.log_cursor import LogCursor
from marin.recorded.deciding.run_names import find_run
from marin.recorded.reading.places import runs_directory, storage_root
from rigging.errors import MarinError, NotFound
from rigging.filesystem import local_path
from rigging.text.printable import printable

_POLL_SECONDS = 0.25
_POLL_SECONDS_AT_STORES = 1.0
# Between two attempts the status is that of the first one; so much later than announced the next may begin.
_PATIENCE_SECONDS = 30.0
# A run whose lease is found dead so often, at such intervals, while nothing is printed, is gone.
_LOOK_SECONDS = 1.0
_LOOKS = 3
_MOST_BYTES = 1 << 22
_LAST_BYTES = 200


@click.command()
@click.argument("step", type=STEP)
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the step ends.")
@click.option("-n", "--lines", type=click.IntRange(min=0), help="Begin with the last N lines.")
@click.option("--poll", type=click.FloatRange(min=0.01), hidden=True)
@prefix_option
@json_option
@pass_context
def logs(
    context: CliContext,
    step: str,
    follow: bool,
    lines: int | None,
    poll: float | None,
    prefix: str | None,
    as_json: bool,
) -> int:
    """Print a step's log, then its error if it failed. With --json: one object; with -f, one for each piece."""
    from marin.recorded.reading.steps import read_status

    path = _find_step(storage_root(prefix), step)
    tail = _Tail(path, lines, as_json and follow)
    if not follow:
        text, error = tail.whole_text(), tail.error_text()
        status = read_status(path)
        if text is None and error is None:
            if status in (None, STATUS_DEP_FAILED):
                raise NotFound(f"{path} has no log: its step has not run yet")
            say(f"{path}: {status}, and its step {'has printed' if status == STATUS_RUNNING else 'printed'} nothing")
        if as_json:
            echo_json({"path": path, "status": status, "log": text, "error": error})
        else:
            _write(text or "")
            _write(error or "")
        return exit_codes.OK
    poll = poll or (_POLL_SECONDS if local_path(path) is not None else _POLL_SECONDS_AT_STORES)
    quiet, presence = 0.0, _Presence(path, poll)
    while True:
        # The status first: what is written before it is in the log that is read after it.
        status = read_status(path)
        text = tail.next_text()
        if text:
            tail.show(text)
        if status not in (None, "RUNNING") and not text:
            quiet += poll
            if quiet > tail.seconds_to_next():
                break
        else:
            quiet = 0.0
        gone = presence.why_gone(context.now(), is_quiet=not text) if status == STATUS_RUNNING else None
        if gone is not None:
            status = f"{status}, but {gone}"
            break
        if not text:
            context.sleep(poll)
    error = tail.error_text() if status != "SUCCESS" else None
    if error:
        tail.show(error, name="error")
    say(f"{path}: {status}")
    return exit_codes.OK if status == "SUCCESS" else exit_codes.FOUND


def _find_step(root: str, name: str) -> str:
    """Return the output path that a name stands for. The error for a run's name says so."""
    from marin.recorded.reading.runs import list_runs
    from marin.recorded.reading.steps import find_step

    try:
        return find_step(root, name, say)
    except NotFound:
        directory = runs_directory(root, None)
        try:
            run = find_run(list_runs(directory), name, directory)
        except MarinError:
            run = None
        if run is None:
            raise
        raise NotFound(
            f"{run.id} is a run, and each of its steps has a log: `marin show {run.id}` lists them"
        ) from None


class _Presence:
    """Detect that the run of an output is gone: check its lease when the log is quiet.

    Args:
        path: The output path.
        poll_seconds: The time between two calls.
    """

    def __init__(self, path: str, poll_seconds: float) -> None:
        from marin.recorded.reading.leases import LeaseWatch

        self._watch = LeaseWatch(path)
        self._poll = poll_seconds
        self._quiet = 0.0
        self._looked_at = 0.0
        self._gone_for = 0

    def why_gone(self, now: float, *, is_quiet: bool) -> str | None:
        """Return why the run is gone, or None while it may still be alive or the log still grows.

        Args:
            now: The time, in seconds since the epoch.
            is_quiet: Whether nothing was printed since the last call.
        """
        from marin.recorded.deciding.leases import why_gone

        if not is_quiet:
            self._quiet, self._looked_at, self._gone_for = 0.0, 0.0, 0
            return None
        self._quiet += self._poll
        if self._quiet - self._looked_at < _LOOK_SECONDS:
            return None
        self._looked_at = self._quiet
        gone = why_gone(self._watch.look(now))
        # A step that ends, and one that is tried again, have no lease for a moment.
        self._gone_for = 0 if gone is None else self._gone_for + 1
        return gone if self._gone_for >= _LOOKS else None


class _Tail:
    """Read new text from the log of an output."""

    def __init__(self, path: str, lines: int | None, as_json: bool) -> None:
        self._path = path
        self._cursor = LogCursor(lines)
        self._as_json = as_json
        self._last = b""

    def seconds_to_next(self) -> float:
        """Return the seconds until the next attempt after a failed one; 0 if there is none."""
        announced = seconds_to_next(self._last.decode("utf-8", "replace").rstrip("\n").rpartition("\n")[2])
        return 0.0 if announced is None else announced + _PATIENCE_SECONDS

    def next_text(self) -> str | None:
        """Return the new text of the log, in whole characters; None if there is no log."""
        from marin.recorded.reading.store import below, read_part, size_of

        log = below(self._path, LOG_FILE)
        size = size_of(log)
        if size is None:
            return None
        start = self._cursor.begin(size)
        pieces = []
        while start < size:
            content = read_part(log, start, min(size, start + _MOST_BYTES))
            if not content:
                break  # replaced by a shorter one meanwhile
            start += len(content)
            self._last = (self._last + content)[-_LAST_BYTES:]
            pieces.append(self._cursor.take(content))
        return self._cursor.first_lines("".join(pieces))

    def whole_text(self) -> str | None:
        """Return the whole log, with the files that job processes wrote beside it; None if there is no log."""
        text = self.next_text()
        beside = self._beside(LOG_FILE)
        return text if beside is None else (text or "") + self._cursor.first_lines(beside)

    def _beside(self, name: str) -> str | None:
        """Return the text that job processes wrote to separate files in a bucket, until the log includes it."""
        from marin.recorded.reading.store import below
        from marin.stored_files import names_in
        from rigging.filesystem import read_bytes_or_none

        if local_path(self._path) is not None:
            return None
        names = sorted(each for each in names_in(self._path) if each.startswith(f"{name}."))
        contents = [content for each in names if (content := read_bytes_or_none(below(self._path, each)))]
        return b"".join(contents).decode("utf-8", "replace") if contents else None

    def error_text(self) -> str | None:
        """Return the step's error, or None."""
        from marin.recorded.reading.store import below
        from rigging.filesystem import read_bytes_or_none

        content = read_bytes_or_none(below(self._path, ERROR_FILE))
        return None if content is None else content.decode("utf-8", "replace")

    def show(self, text: str, name: str = "log") -> None:
        """Write a piece to stdout."""
        if self._as_json:
            import json

            click.echo(json.dumps({"path": self._path, name: text}))
        else:
            _write(text)


def _write(text: str) -> None:
    shown = printable(text) if sys.stdout.isatty() else text
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(shown.encode(encoding, "backslashreplace").decode(encoding), nl=False)
