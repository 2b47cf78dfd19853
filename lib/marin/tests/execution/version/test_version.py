"""Versions: what makes them differ, what may not, what is refused, and that large graphs stay cheap."""

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from marin.execution import Executor, ExecutorStep, compute_output_path, output_path_of, versioned
from marin.execution.jobs.remote import remote
from marin.execution.version.graph import DependencyCycle
from marin.execution.version.step_version import VersionCache, hash_text_md5
from rigging.errors import Conflict, InvalidRequest, NotFound
from support.marin.steps import MakeStep


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (functools.partial(hash_text_md5), "memory address"), ({None, 1}, "hash seed"),
        ([{"deep": {"a", "b"}}], "hash seed"), ({1: 1, "a": 2}, "mixes keys"), (np.zeros(3), "array"),
    ],
)  # fmt: skip
def test_unstable_values_are_refused_naming_step_and_field(make_step: MakeStep, value: Any, reason: str) -> None:
    step = make_step("train/model", {"k": [versioned(value)]})
    with pytest.raises(ValueError, match=reason) as caught:
        VersionCache().version_of(step)
    assert "step 'train/model'" in str(caught.value)
    assert "field 'x.k.[0]" in str(caught.value)


def test_a_text_that_only_looks_like_an_address_is_a_value() -> None:
    assert compute_output_path("n", versioned("at 0x7f0000000000"), prefix="/p").startswith("/p/n-")
    assert compute_output_path("n", versioned(b"at 0x7f0000000000"), prefix="/p").startswith("/p/n-")


def test_a_config_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidRequest, match="contains itself"):
        compute_output_path("n", {"x": endless}, prefix="/p")
    with pytest.raises(InvalidRequest, match="contains itself"):
        compute_output_path("n", {"x": versioned(endless)}, prefix="/p")


def test_two_inputs_of_one_name_in_a_set_are_refused(make_step: MakeStep) -> None:
    twins = {make_step("twin", versioned(1)), make_step("twin", versioned(2))}
    for config in (twins, versioned(twins)):
        with pytest.raises(InvalidRequest, match="use a list"):
            compute_output_path("n", {"x": config}, prefix="/p")


def test_what_is_not_versioned_does_not_count(make_step: MakeStep) -> None:
    cache = VersionCache()
    assert cache.version_of(make_step("n", 1)).digest == cache.version_of(make_step("n", [2, {3: 4}])).digest
    with_fn = make_step("n", 1, description="d", fn=print)
    assert cache.version_of(make_step("n", 1)).digest == cache.version_of(with_fn).digest


def test_an_input_inside_a_versioned_list_counts_and_is_a_dependency(make_step: MakeStep) -> None:
    a = make_step("a", versioned(1))
    inside = versioned([1, {"k": a / "f"}, output_path_of(a).nonblocking()])
    version = VersionCache().version_of(make_step("n", a, inside))
    assert version.version["config"] == {"x": "DEP[0]", "y": [1, {"k": "DEP[1]/f"}, "DEP[2]"]}
    assert version.dependencies == (a, a)
    assert version.pseudo_dependencies == (a,)


def test_a_cycle_is_reported_with_the_names_of_its_steps(make_step: MakeStep) -> None:
    inputs: list[Any] = []
    first = make_step("first", inputs)
    second = make_step("second", first)
    inputs.append(make_step("third", second))
    with pytest.raises(DependencyCycle, match="second -> first -> third -> second"):
        Executor("/p", "/p/experiments").compute_version(second)


def test_a_step_that_is_taken_in_is_needed_unless_it_is_said_to_be_named_only(make_step: MakeStep) -> None:
    """A step that is only named need not run: were that the default, a run would leave out what it was asked for."""
    executor = Executor("/p", "/p/experiments")
    first = make_step("first")
    executor.compute_version(first, is_pseudo_dep=True)
    assert executor.is_pseudo_dep[first]
    executor.compute_version(first)
    assert not executor.is_pseudo_dep[first]


def test_two_versions_on_one_pinned_path_are_refused(make_step: MakeStep) -> None:
    executor = Executor("/p", "/p/experiments")
    first = make_step("one", versioned(1), override_output_path="same")
    executor.compute_version(first)
    executor.compute_version(make_step("one", versioned(1), override_output_path="same"))
    with pytest.raises(Conflict, match=r"/p/same: step 'one' .*'x': 1.* step 'two' .*'x': 2"):
        executor.compute_version(make_step("two", versioned(2), override_output_path="same"))


@pytest.mark.parametrize("pinned", [None, "same"])
def test_two_functions_with_one_name_and_version_are_refused(make_step: MakeStep, pinned: str | None) -> None:
    executor = Executor("/p", "/p/experiments")

    def add(fn: Any) -> None:
        executor.compute_version(make_step("n", versioned(1), fn=fn, override_output_path=pinned))

    add(print)
    with pytest.raises(Conflict, match=r"two steps 'n' have one version .*, builtins.print and builtins.repr"):
        add(repr)
    add(remote(print))  # the same function, elsewhere
    add(None)


def test_two_functions_that_cannot_be_told_apart_count_as_two(make_step: MakeStep) -> None:
    def holding(lock: object) -> Callable[[Any], bool]:
        return lambda config: lock is config

    executor = Executor("/p", "/p/experiments")
    executor.compute_version(make_step("a", versioned(1), fn=holding(threading.Lock())))
    with pytest.raises(Conflict, match="two steps 'a' have one version"):
        executor.compute_version(make_step("a", versioned(1), fn=holding(threading.Lock())))


def test_one_function_with_other_values_bound_to_it_is_another(make_step: MakeStep) -> None:
    executor = Executor("/p", "/p/experiments")
    for _ in range(2):
        executor.compute_version(make_step("n", versioned(1), fn=functools.partial(print, sep="1")))
    for fn in (functools.partial(print, sep="2"), remote(functools.partial(print, sep="2")), print):
        with pytest.raises(Conflict, match=r"two steps 'n' .* builtins.print with different values bound to it"):
            executor.compute_version(make_step("n", versioned(1), fn=fn))


def test_a_real_collision_of_six_digits_is_refused() -> None:
    seen: dict[str, int] = {}
    number = 0
    while (path := compute_output_path("n", versioned(number), prefix="/p")) not in seen:
        seen[path] = number
        number += 1
    executor = Executor("/p", "/p/experiments")
    executor.compute_version(ExecutorStep("n", None, versioned(seen[path])))
    with pytest.raises(Conflict, match=r"/p/n-.*'n' \(version \w+, config .* and step 'n' .*rename one"):
        executor.compute_version(ExecutorStep("n", None, versioned(number)))


def test_equal_steps_are_one(make_step: MakeStep) -> None:
    executor = Executor("/p", "/p/experiments")
    first, second, stranger = (make_step(name, versioned(1)) for name in ("n", "n", "other"))
    for step in (first, second):
        executor.compute_version(step)
    assert executor.canonicalize(second) is first
    assert executor.output_paths[first] == executor.output_paths[second]
    assert len(executor.version_strs) == len(list(executor.version_strs)) == 2
    with pytest.raises(NotFound, match="step 'other' is not part of this run"):
        executor.canonicalize(stranger)
    with pytest.raises(KeyError):
        executor.version_strs[stranger]


def test_a_chain_of_thousands_needs_no_recursion(make_step: MakeStep) -> None:
    step = make_step("s0", versioned(0))
    for index in range(1, 3000):
        step = make_step(f"s{index}", step)
    executor = Executor("/p", "/p/experiments")
    executor.compute_version(step)
    assert len(executor.steps) == 3000
    assert executor.versions[step]["dependencies"][0].startswith("s2998-")


def test_a_beginning_that_many_share_is_read_once() -> None:
    read: list[int] = []

    def counting(text: Any, hasher: Any) -> Any:
        read.append(text.length)
        return hash_text_md5(text, hasher)

    source = ExecutorStep("source", repr, versioned("x" * (1 << 20)))
    cache = VersionCache(counting)
    versions = [cache.version_of(ExecutorStep(f"s{index}", repr, source / "x")) for index in range(10)]
    assert len({version.digest for version in versions}) == 10
    assert sum(length > 1 << 20 for length in read) == 1
