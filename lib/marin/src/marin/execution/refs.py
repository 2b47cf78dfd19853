"""The placeholders that may stand in a step's config: inputs, outputs, versioned and mirrored values."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

from rigging.errors import InvalidRequest

if TYPE_CHECKING:
    from marin.execution.step import ExecutorStep

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

DEFAULT_MIRROR_BUDGET_GB = 10


class NotText:
    """Refuses to become a text: the path that it stands for is known only when the config is instantiated."""

    __slots__ = ()

    def _instead(self) -> str:
        raise NotImplementedError  # pragma: no cover - every subclass says what to write

    def _refuse(self, *ignored: object) -> NoReturn:
        del ignored
        raise InvalidRequest(
            f"{self!r} has no text yet (an f-string, str() or + would put this very description into the path); write "
            f"{self._instead()}"
        )

    def __str__(self) -> str:
        self._refuse()

    def __format__(self, spec: str) -> str:
        self._refuse(spec)

    def __add__(self, other: object) -> NoReturn:
        self._refuse(other)

    def __radd__(self, other: object) -> NoReturn:
        self._refuse(other)


if TYPE_CHECKING:
    # What a step's function sees where an input stands: configs declare such fields as `str`.
    _SeenAsText = str
else:

    class _SeenAsText:
        __slots__ = ()


def _check_inside(path: str | None, what: str) -> None:
    if path and ".." in path and ".." in path.split("/"):
        raise InvalidRequest(f"{what}({path!r}): a '..' part would leave the place that it is relative to")


@dataclass(frozen=True, slots=True)
class InputName(NotText, _SeenAsText):
    """A path below another step's output, or (with `step=None`) a path below the prefix.

    To type checkers it is a `str`, which is what a step's function sees in its place; it has none of a text's methods.

    Attributes:
        step: The step whose output is meant; None for a hardcoded path.
        name: Path relative to that output (or to the prefix); None for the output itself.
        block_on_step: Whether the step that holds this input needs `step` to have run. A non-blocking input counts in
            the version, and its path is filled in, but it is neither run nor waited for.
    """

    step: ExecutorStep[Any] | None
    name: str | None
    block_on_step: bool = True

    def __post_init__(self) -> None:
        is_fixed = self.step is None and self.name is not None and ("://" in self.name or self.name.startswith("/"))
        if not is_fixed:
            _check_inside(self.name, "hardcoded" if self.step is None else "input")

    def _instead(self) -> str:
        return 'input / "x" for a path below it'

    def cd(self, name: str) -> InputName:
        """A path below this one; a blocking input again, even when this one is not."""
        return InputName(self.step, os.path.join(self.name, name) if self.name else name)

    def __truediv__(self, name: str) -> InputName:
        return self.cd(name)

    @staticmethod
    def hardcoded(path: str) -> InputName:
        """A fixed path, relative to the prefix unless it is absolute or a URL; the path itself is its version."""
        return InputName(None, path)

    def nonblocking(self) -> InputName:
        """The same path, for a step that should neither cause this input to be made nor wait for it."""
        return replace(self, block_on_step=False)


@dataclass(frozen=True, slots=True)
class OutputName(NotText):
    """A path below the output of the step that holds it; None for the output path itself.

    Raises:
        InvalidRequest: `name` would leave the output.
    """

    name: str | None = None

    def __post_init__(self) -> None:
        if self.name is None:
            return
        if self.name.startswith("/") or "://" in self.name:
            raise InvalidRequest(f"this_output_path({self.name!r}): an absolute path is not below the step's output")
        _check_inside(self.name, "this_output_path")

    def _instead(self) -> str:
        return 'this_output_path("x") for a path below it'


THIS_OUTPUT_PATH = OutputName(None)


def this_output_path(name: str | None = None) -> str:
    """The output path of the step whose config this stands in, or `name` below it.

    Typed as the string that the step's function will see.
    """
    return cast(str, OutputName(name))


@dataclass(frozen=True)  # no slots: they break `VersionedValue[T](...)` on frozen classes
class VersionedValue(Generic[T_co]):
    """A value that is part of its step's version: another value, another output path."""

    value: T_co


@dataclass(frozen=True)  # no slots: they break `MirroredValue[T](...)` on frozen classes
class MirroredValue(Generic[T_co]):
    """A path that is read through `mirror://`, copying at most `budget_gb` (2^30 bytes each) from other regions."""

    value: T_co
    budget_gb: float = DEFAULT_MIRROR_BUDGET_GB

    def __post_init__(self) -> None:
        if not 0 <= self.budget_gb < math.inf:
            raise InvalidRequest(f"mirrored({self.value!r}): budget_gb={self.budget_gb}: must be 0 or more, and finite")


def versioned(value: T) -> T:
    """Make `value` part of the step's version. Typed as `value`, which is what the step's function will see.

    Raises:
        InvalidRequest: `value` is versioned already.
    """
    if isinstance(value, VersionedValue):
        raise InvalidRequest(f"versioned({value!r}): the value is versioned already; write versioned({value.value!r})")
    return cast(T, VersionedValue(value))


def ensure_versioned(value: T) -> T:
    """`versioned(value)`, or `value` when it is versioned already."""
    return value if isinstance(value, VersionedValue) else versioned(value)


def unwrap_versioned_value(value: T) -> T:
    """The plain value of a versioned one; anything else as it is."""
    return cast(T, value.value) if isinstance(value, VersionedValue) else value


def mirrored(value: T, budget_gb: float = DEFAULT_MIRROR_BUDGET_GB) -> T:
    """Read the path through `mirror://`: copied into this region once, when it is in another one.

    Args:
        value: A path relative to the prefix, `versioned(path)`, or an input.
        budget_gb: The most that one step may copy between regions, in 2^30 bytes. Not part of the version.

    Raises:
        InvalidRequest: `budget_gb` is below 0, or not finite.
    """
    return cast(T, MirroredValue(value, budget_gb))
