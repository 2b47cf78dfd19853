"""The switch to explain experiments instead of running them (see `marin.execution.script.explain`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """A request to explain experiments instead of running them.

    Attributes:
        step: A regex (`re.search`) for the names of steps to show; None for all.
        prefix: The storage root to compare with; None for the experiment's own.
        tell: Receives the explanations of each experiment instead of printing them.
        inspect: Receives each experiment's executor, with the versions of its steps, instead of an explanation. Storage
            is not read.
    """

    step: str | None = None
    prefix: str | None = None
    tell: Callable[[Sequence[Any]], object] | None = None
    inspect: Callable[[Any], object] | None = None


_requested: ContextVar[ExplainRequest | None] = ContextVar("marin_explain", default=None)


@contextmanager
def explaining(request: ExplainRequest | None) -> Iterator[None]:
    """Context manager: every `executor_main` in the block explains instead of running. With None it runs normally."""
    token = _requested.set(request)
    try:
        yield
    finally:
        _requested.reset(token)


def explain_request() -> ExplainRequest | None:
    """Return the request of the enclosing `explaining` block; None outside of any."""
    return _requested.get()
