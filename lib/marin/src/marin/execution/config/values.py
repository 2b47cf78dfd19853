"""Placeholders in a step's config other than inputs: output paths, versioned and mirrored values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar, cast

from marin.execution.config.placeholder import Described, NotText, check_inside, mark
from rigging.errors import InvalidRequest

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

DEFAULT_MIRROR_BUDGET_GB = 10


@dataclass(frozen=True, slots=True, repr=False)
class OutputName(NotText):
    """A path below the output of the step that contains this placeholder; None for the output path itself.

    Raises:
        InvalidRequest: `name` would leave the output.
    """

    name: str | None = None
    marin_placeholder: str = mark("an output path")

    def __post_init__(self) -> None:
        if self.name is None:
            return
        if self.name.startswith("/") or "://" in self.name:
            raise InvalidRequest(f"this_output_path({self.name!r}): an absolute path is not below the step's output")
        check_inside(self.name, "this_output_path")

    _instead: ClassVar[str] = 'this_output_path("x") for a path below it'


THIS_OUTPUT_PATH = OutputName(None)


def this_output_path(name: str | None = None) -> str:
    """Return a placeholder for the output path of the step whose config contains it, or for `name` below it.

    Type checkers see a `str`, which the step's function receives.
    """
    return cast(str, OutputName(name))


@dataclass(frozen=True, repr=False)  # no slots: they break `VersionedValue[T](...)` on frozen classes
class VersionedValue(Described, Generic[T_co]):
    """A value that is part of its step's version: a different value gives a different output path."""

    value: T_co
    marin_placeholder: str = mark("a versioned value")


@dataclass(frozen=True, repr=False)  # no slots: they break `MirroredValue[T](...)` on frozen classes
class MirroredValue(Described, Generic[T_co]):
    """A path that is read through `mirror://`, copying up to `budget_gb` (2^30 bytes each) from other regions."""

    value: T_co
    budget_gb: float = DEFAULT_MIRROR_BUDGET_GB
    marin_placeholder: str = mark("a mirrored path")

    def __post_init__(self) -> None:
        if isinstance(self.value, MirroredValue):
            raise InvalidRequest(f"mirrored({self.value!r}): the value is already mirrored; give it one budget")
        if not 0 <= self.budget_gb < math.inf:
            raise InvalidRequest(f"mirrored({self.value!r}): budget_gb={self.budget_gb}: must be 0 or more, and finite")


def versioned(value: T) -> T:
    """Make `value` part of the step's version. The result has the type of `value`, which the step's function receives.

    Raises:
        InvalidRequest: `value` is already versioned.
    """
    if isinstance(value, VersionedValue):
        raise InvalidRequest(f"versioned({value!r}): the value is already versioned; write versioned({value.value!r})")
    return cast(T, VersionedValue(value))


def ensure_versioned(value: T) -> T:
    """Return `versioned(value)`, or `value` if it is already versioned."""
    return value if isinstance(value, VersionedValue) else versioned(value)


def unwrap_versioned_value(value: T) -> T:
    """Return the value inside a versioned value, or any other value unchanged."""
    return cast(T, value.value) if isinstance(value, VersionedValue) else value


def mirrored(value: T, budget_gb: float = DEFAULT_MIRROR_BUDGET_GB) -> T:
    """Return a path that is read through `mirror://`, which copies a file of another region into this one once.

    Args:
        value: A path relative to the prefix, `versioned(path)`, or an input.
        budget_gb: Maximum that one step may copy between regions, in 2^30 bytes. Not part of the version.

    Raises:
        InvalidRequest: `value` is already mirrored, or `budget_gb` is negative or not finite.
    """
    return cast(T, MirroredValue(value, budget_gb))
