"""Steps of an experiment, each a function with a config, and references to their outputs from other configs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from marin.execution.config.placeholder import NotText, check_inside, mark, note_description
from marin.execution.config.tries import check_tries
from rigging.errors import InvalidRequest

if TYPE_CHECKING:
    from fray.types import ResourceConfig

ConfigT = TypeVar("ConfigT")

# Unicode's category Cc.
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_relative_name(name: str, what: str) -> None:
    """Refuse a name that does not form a plain path below the prefix.

    Raises:
        InvalidRequest: The name is absolute, a URL, has an empty, `.` or `..` part, or a control character.
    """
    problem = _name_problem(name)
    if problem:
        raise InvalidRequest(
            f"{what} {name!r} {problem}; use parts joined by single '/' that stay below the prefix, "
            "such as 'tokenized/fineweb'"
        )


def check_override(path: str, step_name: str) -> None:
    """Refuse a relative fixed output path that is not below the prefix. A trailing slash is allowed.

    Raises:
        InvalidRequest: The path is relative, and leaves the prefix or has an empty or `.` part.
    """
    if not is_absolute(path):
        check_relative_name(path.removesuffix("/"), f"step {step_name!r}: override_output_path")


def _name_problem(name: str) -> str | None:
    if not isinstance(name, str) or not name:
        return "is not a non-empty string"
    if _CONTROL_CHARACTER.search(name):
        return "has a control character"
    if "://" in name:
        return "is a URL"
    if name.startswith("/"):
        return "is absolute"
    parts = name.split("/")
    if "" in parts:
        return "has an empty part"
    if "." in parts or ".." in parts:
        return "has a '.' or '..' part"
    return None


if TYPE_CHECKING:
    # What a step's function sees where an input stands: configs declare such fields as `str`.
    _SeenAsText = str
else:

    class _SeenAsText:
        __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class InputName(NotText, _SeenAsText):
    """A path below another step's output or, with `step=None`, below the prefix.

    Type checkers see a `str`, because the step's function receives a string. It has no string methods.

    Attributes:
        step: The step that makes the output; None for a hardcoded path.
        name: The path relative to that output (or the prefix); None for the output itself.
        block_on_step: Whether the step that contains this input waits for `step`. A non-blocking input is part of the
            version and its path is filled in, but the run ignores its step.
    """

    step: ExecutorStep[Any] | None
    name: str | None
    block_on_step: bool = True
    marin_placeholder: str = mark("an input")

    def __post_init__(self) -> None:
        if self.step is not None and self.name is not None and (self.name.startswith("/") or "://" in self.name):
            raise InvalidRequest(f"{self.name!r}: an absolute path is not below the output of step {self.step.name!r}")
        is_fixed = self.step is None and self.name is not None and ("://" in self.name or self.name.startswith("/"))
        if not is_fixed:
            check_inside(self.name, "hardcoded" if self.step is None else "input")

    _instead: ClassVar[str] = 'input / "x" for a path below it'

    def cd(self, name: str) -> InputName:
        """Return a path below this one as a blocking input."""
        return InputName(self.step, os.path.join(self.name, name) if self.name else name)

    def __truediv__(self, name: str) -> InputName:
        return self.cd(name)

    @staticmethod
    def hardcoded(path: str) -> InputName:
        """Return a fixed path as an input. It is versioned, and relative to the prefix unless absolute or a URL."""
        return InputName(None, path)

    def nonblocking(self) -> InputName:
        """Return the same path as a non-blocking input, whose step the run ignores."""
        return replace(self, block_on_step=False)


# No slots: they break `ExecutorStep[Config](...)` on a frozen class, which refuses the attribute that typing sets.
@dataclass(frozen=True, eq=False, repr=False)
class ExecutorStep(NotText, Generic[ConfigT]):
    """A function with a config. The name, versioned values and inputs determine the output path.

    Steps are equal only if they are the same object. Steps of equal version share one output path.

    Attributes:
        name: The first part of the output path, such as `tokenized/fineweb`.
        fn: Called with the instantiated config. A `remote()` function runs as a separate job.
        config: Usually a dataclass. It may contain `versioned()`, `this_output_path()`, `output_path_of()`, or steps.
        description: Its purpose; not part of the version.
        override_output_path: A fixed output path (joined to the prefix when relative), instead of the computed one.
        resources: If given, the function runs as a separate job with these resources.
        pip_dependency_groups: For that job: extras of this project, or pip requirements.
        retries: Retries after a failure; None for the value given to `remote()`, or else 0.
        retry_delay: Seconds before a retry; None for the value given to `remote()`, or else 0.
        timeout: Timeout of an attempt in seconds, not counting the time its job is queued; None for the value given to
            `remote()`, or else no limit.

    Raises:
        InvalidRequest: The name, or a relative override, would leave the prefix; or a number is out of range.
    """

    name: str
    fn: Callable[[ConfigT], Any] | None
    config: ConfigT
    description: str | None = None
    override_output_path: str | None = None
    resources: ResourceConfig | None = None
    pip_dependency_groups: Sequence[str] | None = None
    marin_placeholder: str = mark("a step")
    retries: int | None = field(default=None, kw_only=True)
    retry_delay: float | None = field(default=None, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_relative_name(self.name, "step name")
        check_tries(f"step {self.name!r}", self.retries, self.retry_delay, self.timeout)
        override = self.override_output_path
        if override is not None and not isinstance(override, str):
            raise InvalidRequest(f"step {self.name!r}: override_output_path {override!r} is not a path's text")
        if override is not None:
            check_override(override, self.name)

    def __repr__(self) -> str:
        note_description()
        # Not the config: it holds other steps, and theirs hold others.
        return f"ExecutorStep(name={self.name!r})"

    _instead: ClassVar[str] = 'step / "x" for a path below its output, step.name for its name'

    def cd(self, name: str) -> InputName:
        """Return a path below this step's output, for another step's config."""
        return InputName(self, name)

    def __truediv__(self, name: str) -> InputName:
        return self.cd(name)

    def with_output_path(self, output_path: str) -> ExecutorStep[ConfigT]:
        """Return the same step with a fixed output path."""
        return replace(self, override_output_path=output_path)

    def as_input_name(self) -> InputName:
        """Return a reference to this step's whole output."""
        return InputName(self, None)


def is_absolute(path: str) -> bool:
    """Return whether a path is not relative to the prefix: absolute, or a URL."""
    return path.startswith("/") or "://" in path


def output_path_of(step: ExecutorStep[Any] | InputName, name: str | None = None) -> InputName:
    """Return a reference to a step's output, or to `name` below it.

    Raises:
        InvalidRequest: `step` is neither a step nor an input.
    """
    if isinstance(step, InputName):
        return step if name is None else step.cd(name)
    if not isinstance(step, ExecutorStep):
        raise InvalidRequest(
            f"output_path_of({step!r}): neither an ExecutorStep nor an input made from one; a path of no step is "
            "InputName.hardcoded(path)"
        )
    return InputName(step, name)


def get_executor_step(run: ExecutorStep[Any] | InputName) -> ExecutorStep[Any]:
    """Return the step itself, or the step of an input.

    Raises:
        InvalidRequest: `run` is a hardcoded input, or neither a step nor an input.
    """
    if isinstance(run, ExecutorStep):
        return run
    if isinstance(run, InputName) and run.step is not None:
        return run.step
    raise InvalidRequest(f"{run!r} refers to no step; give an ExecutorStep or an input made from one")
