import json
from pathlib import Path
from typing import Any

import pytest

from marin.execution import ExecutorStep, compute_output_path, mirrored, versioned
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_SUCCESS
from rigging.errors import Conflict
from support.marin.steps import MakeExecutor, MakeStep


def find_collision() -> tuple[int, int]:
    """Two versioned numbers for which the six digits are the same: about 5,000 tries."""
    seen: dict[str, int] = {}
    number = 0
    while (path := compute_output_path("n", versioned(number), prefix="/p")) not in seen:
        seen[path] = number
        number += 1
    return seen[path], number


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


def test_pinned_paths_warn(make_step: MakeStep, make_executor: MakeExecutor, caplog: pytest.LogCaptureFixture) -> None:
    make_executor().run([make_step("a", versioned(1), override_output_path="pinned")])
    executor = make_executor()
    executor.run([make_step("b", versioned(2), override_output_path="pinned")])
    assert "holds another version: step 'a' (config {'x': 1}); it is fixed by override_output_path" in caplog.text


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"name": "other"}', b'{"version": {}}'])
def test_files_that_say_nothing_stop_nobody(make_step: MakeStep, make_executor: MakeExecutor, content: bytes) -> None:
    step = make_step("a", versioned(1))
    executor = make_executor()
    executor.compute_version(step)
    path = Path(executor.output_paths[step])
    path.mkdir(parents=True)
    (path / ".executor_info").write_bytes(content)
    (path / ".executor_status").write_text("FAILED")
    (path / ".executor_status.lock").write_bytes(content)
    executor.run([step])
    assert json.loads((path / ".executor_info").read_text())["version"]["config"] == {"x": 1}
    assert StatusFile(str(path)).status == STATUS_SUCCESS


def test_a_version_that_names_a_regions_bucket_warns(caplog: pytest.LogCaptureFixture) -> None:
    paths = [
        compute_output_path("a", {"k": versioned([1, f"gs://marin-{region}/raw/x"])}, prefix="/p")
        for region in ("us-central2", "us-east1")
    ]
    assert paths[0] != paths[1]
    assert "step 'a': field 'k' names the bucket of region us-central2" in caplog.text
    assert "mirrored(versioned('raw/x'))" in caplog.text
    caplog.clear()
    compute_output_path("c", [mirrored(versioned("raw/x")), "gs://marin-us-central2/raw/x"], prefix="/p")
    assert caplog.text == ""
