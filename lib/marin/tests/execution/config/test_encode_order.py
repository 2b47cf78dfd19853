"""Versioned values whose text depended on more than the value, or on less."""

import subprocess
import sys

import numpy as np
import pytest

from marin.execution import ExecutorStep, versioned
from marin.execution.config.encode import UnstableValue, encode
from marin.execution.executor import compute_output_path


def path_of(value: object) -> str:
    return compute_output_path("s", {"v": versioned(value)}, prefix="/p")


def refused(value: object) -> str:
    with pytest.raises(UnstableValue) as told:
        path_of(value)
    return str(told.value)


COLLIDING = [(8, 0), (0, 8, 16), (1, 1 + 2**61 - 1, 9), (0.5, 2.0**61, 8), ((1, 2), (3, 4), (5, 6))]


@pytest.mark.parametrize("members", COLLIDING, ids=str)
@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_set_has_one_path_whatever_the_order_in_which_it_was_made(kind: type, members: tuple) -> None:
    grown = set(range(1000))
    grown.difference_update(range(1000))
    grown.update(reversed(members))
    assert path_of(kind(members)) == path_of(kind(members[::-1])) == path_of(kind(grown))


def test_the_text_of_a_set_that_never_depended_on_order_stays() -> None:
    for value in ({3, 1, 2}, {1.5, 2}, frozenset({(1, 2), 3}), set(), {True, False}):
        assert encode(value, "v", lambda _: "") == str(value)


def test_sets_with_one_hash_have_one_path_in_every_process() -> None:
    program = "import sys; sys.path[:0] = []; from marin.execution.executor import compute_output_path as c; "
    program += "from marin.execution import versioned as v; print(c('s', {'v': v({16, 8, 0})}, prefix='/p'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == path_of({0, 8, 16})


def test_what_hides_an_address_or_the_names_of_fields_is_refused() -> None:
    assert "memory address" in refused(slice(object()))
    assert "memory address" in refused(slice(1, [object()]))
    record = np.zeros(1, dtype=[("a", "i4"), ("b", "i4")])[0]
    assert "record.dtype.names" in refused(record)
    assert path_of(slice(1, 2)) != path_of(slice(1, 3))
    assert isinstance(ExecutorStep(name="s", fn=None, config={"v": versioned(np.float32(1))}), ExecutorStep)
