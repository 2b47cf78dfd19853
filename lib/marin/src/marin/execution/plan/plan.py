"""The plan for a set of steps: their versions, output paths and instantiated configs, with equal steps merged."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from marin.execution.config.classes import classes_and_code, classes_of
from marin.execution.config.hidden import find_inside
from marin.execution.config.instantiate import instantiate_config
from marin.execution.config.unversioned import unversioned_part
from marin.execution.config.visitor import PLACEHOLDERS
from marin.execution.jobs.remote import RemoteCallable, function_name
from marin.execution.plan.call_identity import Unidentified, function_identity
from marin.execution.plan.collision import check_same_version, describe
from marin.execution.record.function_source import function_source
from marin.execution.record.held import held_by
from marin.execution.record.info import ExecutorStepInfo, bounded_version
from marin.execution.record.own_modules import OwnModules
from marin.execution.record.provenance import class_differences, in_words, note_kinds, source_differences
from marin.execution.step_spec import ExecutorStepFunction, StepSpec, StepSpecFunction
from marin.execution.version.canonical import strict
from marin.execution.version.differences import Difference, value_differences
from marin.execution.version.graph import dependencies_first
from marin.execution.version.paths import Places, output_path_for, tagged_path
from marin.execution.version.step_version import Step, StepVersion, VersionCache
from rigging.errors import Conflict, InvalidRequest, NotFound
from rigging.redaction import redact_value

_CodeRecord = tuple[dict[str, str], dict[str, Any]]


class StepPlan:
    """Steps with their versions, output paths and instantiated configs. Does not access storage.

    Args:
        prefix: The storage root of every output path.

    Attributes:
        merged: By output path: the unversioned values and code in which later steps of the same version differ from the
            first one. Only the first is run.
        own_modules: The modules of the user's own projects, to find the code that functions reach.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.configs: dict[Step, Any] = {}
        self.dependencies: dict[Step, list[Step]] = {}
        self.versions: dict[Step, dict[str, Any]] = {}
        self.hashed_versions: dict[Step, str] = {}
        self.output_paths: dict[Step, str] = {}
        self.is_pseudo_dep: dict[Step, bool] = {}
        self.merged: dict[str, list[Difference]] = {}
        self._versions = VersionCache()
        self._code: dict[tuple[int, ...], tuple[Any, _CodeRecord]] = {}
        self.own_modules = OwnModules()
        self._canonical: dict[str, Step] = {}
        self._places = Places()
        # The own paths of steps that have been moved.
        self._left: dict[Step, str] = {}
        self._seen: dict[Step, tuple[dict[str, str], tuple[Any, ...]]] = {}

    def add(self, step: Step, is_pseudo_dep: bool) -> None:
        """Add a step and everything it refers to.

        Args:
            step: The step.
            is_pseudo_dep: Whether the step is only named and need not run. Ignored for a step that must already run.

        Raises:
            InvalidRequest: A config cannot be versioned, a placeholder is bound to a function, or steps depend on each
                other in a circle.
            Conflict: Two different versions have one output path, or two functions have the same name and version.
        """
        # Versions first: they find a cycle before anything else follows it.
        version = self._versions.version_of(step)
        if all(reference in self.output_paths for reference in _references(version)):
            if step not in self.output_paths:
                self._add_one(step, version)
        else:
            for node in dependencies_first(
                [step],
                lambda node: _references(self._versions.version_of(node)),
                lambda node: node.name,
                self.output_paths.__contains__,
            ):
                self._add_one(node, self._versions.version_of(node))
        if not is_pseudo_dep:
            self._need(step)

    def _need(self, step: Step) -> None:
        """Mark a step and its dependencies as required."""
        stack = [step]
        while stack:
            node = stack.pop()
            if self.is_pseudo_dep[node]:
                self.is_pseudo_dep[node] = False
                stack += self.dependencies[node]

    def version_of(self, step: Step) -> StepVersion:
        """Return the version of a step."""
        return self._versions.version_of(step)

    def canonicalize(self, step: Step) -> Step:
        """Return the first added step with this step's version and output path.

        Raises:
            NotFound: The step has not been added.
        """
        path = self.output_paths.get(step)
        if path is None:
            raise NotFound(f"step {step.name!r} is not part of this run; give it to run() or compute_version() first")
        return self._canonical[self._places.of(path)]

    def own_path(self, step: Step) -> str:
        """Return the output path from a step's version, even if the step has been moved."""
        return self._left.get(step) or self.output_paths[step]

    def move(self, tags: Mapping[Step, str]) -> None:
        """Give canonical steps the output path `{own path}@{tag}`, and every other step its own. Inputs are updated.

        Raises:
            Conflict: Another step already has the path.
        """
        back = self._left
        self.output_paths.update(back)
        firsts = {step: self.canonicalize(step) for step in self.output_paths} if tags else {}
        self._left = {step: self.output_paths[step] for step, first in firsts.items() if first in tags}
        for step, own in self._left.items():
            path = self.output_paths[step] = tagged_path(own, tags[firsts[step]])
            other = self._canonical.setdefault(self._places.of(path), firsts[step])
            if other is not firsts[step]:
                raise Conflict(f"step {other.name!r} already has the output path {path}; choose another tag")
        for step in {**back, **self._left}:
            self.configs[step] = instantiate_config(
                step.config, self.output_paths[step], self.output_paths, self.prefix
            )

    def references(self, step: Step) -> list[Step]:
        """Return the canonical steps that a step refers to, by blocking and non-blocking inputs."""
        return [self.canonicalize(reference) for reference in _references(self.version_of(step))]

    def merged_among(self, steps: Iterable[Step]) -> dict[str, list[Difference]]:
        """Return the part of `merged` that belongs to the given steps."""
        paths = [self.output_paths[step] for step in steps]
        return {path: self.merged[path] for path in paths if path in self.merged}

    def info(self, step: Step) -> ExecutorStepInfo:
        """Return the content of a step's `.executor_info`."""
        classes, held = self._classes_and_held(step)
        source, reached = self._code_record(step.fn, held)
        return ExecutorStepInfo(
            name=step.name,
            fn_name=function_name(step.fn),
            config=self.configs[step],
            description=step.description,
            override_output_path=step.override_output_path,
            version=self.written_version(step),
            dependencies=[self.output_paths[dependency] for dependency in self.dependencies[step]],
            output_path=self.output_paths[step],
            unversioned=unversioned_part(step.config),
            source=dict(source),
            classes=classes,
            reached=reached,
        )

    def code_of(self, step: Step) -> tuple[Any, ...]:
        """Return a step's function, and the functions and classes contained in it or in the step's config."""
        return (step.fn, *self._classes_and_held(step)[1])

    def code_by_function(self) -> dict[str, list[Any]]:
        """Return the code of all steps with an info (`code_of`), by the names of their functions."""
        found: dict[str, list[Any]] = {}
        for (fn, held), _ in self._code.values():
            found.setdefault(function_name(fn), []).extend([fn, *held])
        return found

    def _classes_and_held(self, step: Step) -> tuple[dict[str, str], tuple[Any, ...]]:
        known = self._seen.get(step)
        if known is None:
            classes, code = classes_and_code(step.config)
            # A plain function, as most steps have, holds nothing.
            is_plain = type(step.fn) is types.FunctionType and not step.fn.__closure__ and not code
            known = self._seen[step] = classes, () if is_plain else tuple(held_by([step.fn, *code]))
        return known

    def _code_record(self, fn: Callable[..., Any] | None, held: Sequence[Any] = ()) -> _CodeRecord:
        """Return the record of a step's code: `function_source` and `OwnModules.reached`. Each is computed once,
        because values that functions name may change in a notebook.
        """
        # By id, as not every callable can be hashed; they are kept, so that no id is used again.
        key = (id(fn), *map(id, held))
        known = self._code.get(key)
        if known is None:
            record = function_source(fn, held), self.own_modules.reached(fn, held)
            known = self._code[key] = (fn, held), record
        return known[1]

    def written_version(self, step: Step) -> dict[str, Any]:
        """Return the version for `.executor_info`, with dependencies shortened to name and hash if it would be very
        long."""
        version = self.version_of(step)
        if version.text.is_flat:
            return version.version
        return bounded_version(
            version,
            [self.version_of(dependency).hashed_name for dependency in version.dependencies],
            [self.version_of(dependency).hashed_name for dependency in version.pseudo_dependencies],
        )

    def _add_one(self, step: Step, version: StepVersion) -> None:
        _check_bound(step)
        path = output_path_for(step, version, self.prefix)
        canonical = self._canonical.setdefault(self._places.of(path), step)
        if canonical is not step:
            check_same_version(canonical, self._versions.version_of(canonical), step, version, path)
            _check_same_function(canonical, step, version)
            self._note_merged(path, canonical, step)
        self.output_paths[step] = path
        self.is_pseudo_dep[step] = True
        self.versions[step] = version.version
        self.hashed_versions[step] = version.hash_id
        self.dependencies[step] = [self.canonicalize(dependency) for dependency in version.dependencies]
        self.configs[step] = instantiate_config(step.config, path, self.output_paths, self.prefix)

    def _note_merged(self, path: str, first: Step, second: Step) -> None:
        found: list[Difference] = []
        if first.config is not second.config:
            _check_same_classes(path, first, second)
            parts = (strict(redact_value(unversioned_part(step.config))) for step in (first, second))
            found += value_differences(*parts)
        if first.fn is not second.fn:
            found += source_differences({"source": self._code_record(first.fn)[0]}, self._code_record(second.fn)[0])
        if found:
            self.merged.setdefault(path, []).extend(found)


def _references(version: StepVersion) -> tuple[Step, ...]:
    return version.dependencies + version.pseudo_dependencies


def _check_same_function(first: Step, second: Step, version: StepVersion) -> None:
    if first.fn is None or second.fn is None or first.fn is second.fn:
        return
    one, other = function_name(first.fn), function_name(second.fn)
    if one == other and _is_same_function(first.fn, second.fn):
        return
    what = f"different functions, {one} and {other}" if one != other else f"{one} with different values bound to it"
    raise Conflict(
        f"two steps {first.name!r} have one version ({describe(version)}) but {what}; give one of them another name, "
        "or a versioned value that distinguishes them"
    )


def _check_same_classes(path: str, first: Step, second: Step) -> None:
    old, new = classes_of(first.config), classes_of(second.config)
    found = class_differences(old, new)
    if found:
        raise Conflict(
            f"two steps {first.name!r} have one version but configs of different classes ({in_words(found)}), so both "
            f"have the output path {path}; give one of them another name, or a versioned value that distinguishes them"
        )
    note_kinds(path, old, new)


def _check_bound(step: Step) -> None:
    """Check that a step's function contains no placeholder, which would never be replaced."""
    fn = step.fn
    while isinstance(fn, (RemoteCallable, StepSpecFunction, ExecutorStepFunction)):
        fn = fn.fn if isinstance(fn, RemoteCallable) else fn.__wrapped__
    closed = (StepSpec, StepSpecFunction, ExecutorStepFunction)
    found = find_inside(fn, lambda item: isinstance(item, PLACEHOLDERS), closed)
    if found is not None:
        raise InvalidRequest(
            f"step {step.name!r}: its function {function_name(fn)} holds {found[1]!r} at {found[0]}, where it would "
            "neither count in the version nor be replaced by its value; pass it in the step's config"
        )


def _is_same_function(first: Callable[..., Any], second: Callable[..., Any]) -> bool:
    """Return whether two functions of one name have equal bound values; False if unknown."""
    try:
        return function_identity(first) == function_identity(second)
    except Unidentified:
        return False


class VersionTexts(Mapping[Step, str]):
    """`json.dumps(version, sort_keys=True)` of each step, computed on access because the text is very long in deep
    graphs."""

    def __init__(self, plan: StepPlan) -> None:
        self._plan = plan

    def __getitem__(self, step: Step) -> str:
        if step not in self._plan.output_paths:
            raise KeyError(step)
        return bytes(self._plan.version_of(step).text).decode()

    def __iter__(self) -> Iterator[Step]:
        return iter(self._plan.output_paths)

    def __len__(self) -> int:
        return len(self._plan.output_paths)


class StepsByVersionText(Mapping[str, Step]):
    """The canonical step of each version text."""

    def __init__(self, plan: StepPlan, texts: VersionTexts) -> None:
        self._plan = plan
        self._texts = texts

    def __getitem__(self, text: str) -> Step:
        for step in self._texts:
            if self._plan.version_of(step).text.length == len(text) and self._texts[step] == text:
                return self._plan.canonicalize(step)
        raise KeyError(text)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(self._texts.values()))

    def __len__(self) -> int:
        return len({self._plan.version_of(step).digest for step in self._texts})
