"""Steps without a config (their published examples are in test_vectors)."""

import pytest

from marin.execution.step_spec import StepSpec
from rigging.errors import InvalidRequest


def test_deps() -> None:
    b, a = (StepSpec(name=name, output_path_prefix="/p") for name in "ba")
    one = StepSpec(name="n", deps=[a, b])
    other = StepSpec(name="n", deps=[b, a])
    assert one.hash_id == other.hash_id != StepSpec(name="n", deps=[a]).hash_id
    assert one.dep_paths == [a.output_path, b.output_path]
    assert one.dep_names == [a.name_with_hash, b.name_with_hash]


def test_the_prefix_is_the_processes_own_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_PREFIX", "/mine")
    spec = StepSpec(name="n")
    assert spec.output_path == f"/mine/{spec.name_with_hash}"


def test_what_is_not_json_or_leaves_the_prefix_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"step 'n': hash_attrs .* is not plain JSON"):
        _ = StepSpec(name="n", hash_attrs={"k": {1, 2}}).hash_id
    with pytest.raises(InvalidRequest, match=r"'\.\.' part"):
        StepSpec(name="../n")
    with pytest.raises(InvalidRequest, match=r"'\.\.' part"):
        StepSpec(name="n", override_output_path="../n")
