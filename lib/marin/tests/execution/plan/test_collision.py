"""Two versions with one output path, against what is in storage; and versions that name a region."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin.execution import Executor, ExecutorStep, InputName, compute_output_path, mirrored, versioned
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_SUCCESS
from rigging.errors import Conflict

MakeStep = Callable[..., ExecutorStep[Any]]
MakeExecutor = Callable[[], Executor]


def find_collision() -> tuple[int, int]:
    """Two versioned numbers for which the six digits are the same: about 5,000 tries."""
    seen: dict[str, int] = {}
    for number in range(1 << 20):
        path = compute_output_path("n", versioned(number), prefix="/p")
        if path in seen:
            return seen[path], number
        seen[path] = number
    raise AssertionError("no collision of 24 bits in 2**20 tries")


def test_a_collision_with_what_is_in_storage_stops_the_run_before_anything_runs(make_executor: MakeExecutor) -> None:
    first, second = find_collision()
    make_executor().run([ExecutorStep("n", repr, versioned(first))])
    ran: list[Any] = []
    fresh = ExecutorStep("fresh", ran.append, None)
    executor = make_executor()
    with pytest.raises(Conflict) as caught:
        executor.run([fresh, ExecutorStep("n", repr, versioned(second))])
    message = str(caught.value)
    for part in ("step 'n'", str(first), str(second), "both hash to", "Nothing has run", "Rename the step"):
        assert part in message
    assert ran == []
    assert not Path(executor.output_paths[fresh]).exists()


def test_a_change_that_is_not_versioned_is_no_collision(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    versions = versioned({1: float("nan"), 2: [None, (1, 2)]})
    make_executor().run([make_step("a", versions, "one")])
    executor = make_executor()
    executor.run([make_step("a", versions, "two")])
    assert not executor.results[0].seconds


def test_a_pinned_path_may_hold_another_version_and_warns(
    make_step: MakeStep, make_executor: MakeExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    make_executor().run([make_step("a", versioned(1), override_output_path="pinned")])
    executor = make_executor()
    executor.run([make_step("b", versioned(2), override_output_path="pinned")])
    assert "holds another version: step 'a' (config {'x': 1}); it is fixed by override_output_path" in caplog.text


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"name": "other"}', b'{"version": {}}'])
def test_an_info_that_says_nothing_stops_nobody(
    make_step: MakeStep, make_executor: MakeExecutor, content: bytes
) -> None:
    step = make_step("a", versioned(1))
    executor = make_executor()
    executor.compute_version(step)
    path = Path(executor.output_paths[step])
    path.mkdir(parents=True)
    (path / ".executor_info").write_bytes(content)
    (path / ".executor_status").write_text("FAILED")
    executor.run([step])
    assert json.loads((path / ".executor_info").read_text())["version"]["config"] == {"x": 1}


@pytest.mark.parametrize("lock", [b"", b"{", b'{"worker_id": "x"', b"null"])
def test_a_truncated_lock_file_stops_nobody(make_step: MakeStep, make_executor: MakeExecutor, lock: bytes) -> None:
    step = make_step("a")
    executor = make_executor()
    executor.compute_version(step)
    path = Path(executor.output_paths[step])
    path.mkdir(parents=True)
    (path / ".executor_status.lock").write_bytes(lock)
    executor.run([step])
    assert StatusFile(str(path)).status == STATUS_SUCCESS


def test_a_relative_prefix(tmp_path: Path, make_step: MakeStep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    executor = Executor("here", "here/experiments")
    [path] = executor.run([make_step("a")]).values()
    assert Path(tmp_path, path, ".executor_status").read_text() == STATUS_SUCCESS


def test_a_version_that_names_a_regions_bucket_is_warned_of(
    make_step: MakeStep, make_executor: MakeExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    regional = "gs://marin-us-central2/raw/x"
    steps = [make_step("a", {"k": versioned([1, regional])}), make_step("b", InputName.hardcoded(regional))]
    paths = [compute_output_path(step.name, step.config, prefix="/p") for step in steps]
    for name, field in (("a", "x.k"), ("b", "x")):
        assert f"step '{name}': field '{field}' names the bucket of region us-central2" in caplog.text
    assert "mirrored(versioned('raw/x'))" in caplog.text
    # Never silently rehashed: what is written is what is hashed.
    other = make_step("a", {"k": versioned([1, "gs://marin-us-east1/raw/x"])})
    assert compute_output_path("a", other.config, prefix="/p") != paths[0]
    caplog.clear()
    compute_output_path("c", make_step("c", mirrored(versioned("raw/x")), regional).config, prefix="/p")
    assert caplog.text == ""
