"""Whether experiments are to be explained instead of run (see `marin.execution.script.explain`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """That experiments are to be explained instead of run: names of steps to show (`re.search`), None for all."""

    step: str | None = None


_requested: ContextVar[ExplainRequest | None] = ContextVar("marin_explain", default=None)


@contextmanager
def explaining(request: ExplainRequest) -> Iterator[None]:
    """Make every `executor_main` within the block explain instead of run."""
    token = _requested.set(request)
    try:
        yield
    finally:
        _requested.reset(token)


def explain_request() -> ExplainRequest | None:
    """What is asked for around this call, if anything."""
    return _requested.get()
