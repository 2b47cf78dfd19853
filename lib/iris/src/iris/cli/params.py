"""Parameter types in addition to click's. They refuse invalid values before the command runs."""

import math
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from iris.domain.constraints import Constraint, parse_constraint
from rigging.errors import InvalidRequest
from rigging.text.quantities import MAX_COUNT, MAX_SECONDS, check_unit


class NumberRange(click.FloatRange):
    """A number in a range. Unlike click's own, it rejects "nan"."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class Name(click.types.StringParamType):
    """Non-empty text. An empty argument is an error."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = super().convert(value, param, ctx)
        if not text.strip():
            self.fail("it is empty; give a name, or omit the option.", param, ctx)
        return text


class Directory(click.Path):
    """The path of a directory, which need not exist. Empty text is an error."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            self.fail("it is empty; give a path, or omit the option.", param, ctx)
        return super().convert(value, param, ctx)


class Size(click.types.StringParamType):
    """A size such as "4GB", kept as text.

    Args:
        zero: Why 0 is refused; empty allows 0.
    """

    name = "size"

    def __init__(self, zero: str = "") -> None:
        self._zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            size = check_unit(value, param.name or "size" if param is not None else "size")
        except InvalidRequest as error:
            self.fail(str(error), param, ctx)
        if not size and self._zero:
            self.fail(f"{value!r} is not an amount of memory; use at least 1MB. {self._zero}", param, ctx)
        return value


SIZE: Final = Size()
MEMORY: Final = Size("If omitted, the scheduler assumes 1GB, and --soft-limits says whether that is a limit.")
SECONDS: Final = NumberRange(min=0, min_open=True, max=MAX_SECONDS)
SECONDS_OR_ZERO: Final = NumberRange(min=0, max=MAX_SECONDS)
COUNT: Final = click.IntRange(min=1, max=MAX_COUNT)
NAME: Final = Name()
DIRECTORY: Final = Directory()
LISTED: Final = click.IntRange(min=1, max=10_000)
"""Maximum number of jobs that the controller lists."""


class Moment(click.types.StringParamType):
    """A point in time: absolute in ISO 8601 (local time by default), or relative to now: "90s", "10m", "2h".

    Args:
        sign: -1 if a relative time is in the past, 1 if it is in the future.
    """

    name = "time"

    def __init__(self, sign: int = -1) -> None:
        self._sign = sign

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, datetime):
            return value
        distance = _AGO.fullmatch(value.strip())
        try:
            if distance is not None:
                return datetime.now(UTC) + self._sign * timedelta(**{_UNITS[distance[2]]: float(distance[1])})
            return datetime.fromisoformat(value.strip()).astimezone()
        except (ValueError, OverflowError, OSError):
            how = "how long ago" if self._sign < 0 else "in how long"
            self.fail(
                f"{value!r} is not a time; use e.g. 2026-05-03T14:00, or {how}: 90s, 10m, 2h, 3d.",
                param,
                ctx,
            )


class Span(click.types.StringParamType):
    """A time span: seconds, or a number with s, m, h or d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, int | float):
            return float(value)
        found = _SPAN.fullmatch(value.strip())
        seconds = float(found[1]) * _SECONDS[found[2] or "s"] if found is not None else 0.0
        if not 0 < seconds <= MAX_SECONDS:
            self.fail(f"{value!r} is not a time span above 0; use seconds, or 90s, 10m, 2h, 3d.", param, ctx)
        return seconds


class Condition(click.types.StringParamType):
    """A condition on an attribute of workers (see `parse_constraint`)."""

    name = "condition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, Constraint):
            return value
        try:
            return parse_constraint(value)
        except InvalidRequest as error:
            self.fail(f"{error}.", param, ctx)


class JobRef(click.types.StringParamType):
    """The name or id of a job. The shell completes it from the cluster.

    Args:
        live: Complete only jobs that have not ended.
    """

    def __init__(self, *, live: bool = False) -> None:
        self._live = live

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the jobs that begin with the typed text."""
        del param
        from iris.cli.completion import job_names

        return [CompletionItem(name) for name in job_names(ctx, incomplete, live=self._live)]


class WorkerRef(Name):
    """The name of a worker. The shell completes it from the cluster."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the workers that begin with the typed text."""
        del param
        from iris.cli.completion import worker_names

        return [CompletionItem(name) for name in worker_names(ctx, incomplete)]


class ClusterRef(Name):
    """The name of a cluster, which the shell completes."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the clusters that begin with the typed text."""
        del ctx, param
        from iris.cli.completion import cluster_names

        return [CompletionItem(name) for name in cluster_names(incomplete)]


_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)", re.ASCII)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
MOMENT: Final = Moment()
LATER: Final = Moment(sign=1)
SPAN: Final = Span()
CONDITION: Final = Condition()
JOB: Final = JobRef()
LIVE_JOB: Final = JobRef(live=True)
WORKER: Final = WorkerRef()
CLUSTER: Final = ClusterRef()
