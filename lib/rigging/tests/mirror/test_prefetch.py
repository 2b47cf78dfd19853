"""Mirroring ahead: plans, progress, budgets, and the command."""

import os
import subprocess
import sys
from typing import Any

import pytest

from rigging.copying.fetch import copy_files
from rigging.copying.request import Settings
from rigging.errors import InvalidRequest
from rigging.filesystem import mirror_plan, mirror_prefetch
from rigging.filesystem.budget import TransferBudget
from rigging.mirror import __main__ as command
from rigging.mirror.prefetch import Progress

PAIRS = [("local", "local"), ("local", "gcs"), ("gcs", "gcs"), ("gcs", "s3"), ("s3", "s3"), ("memory", "local")]


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_a_directory_is_mirrored_with_progress(make_regions: Any, budget: TransferBudget, here, there):
    regions = make_regions(here, there)
    files = {f"d/{number % 3}/{number}": os.urandom(100 + number) for number in range(30)}
    for path, data in files.items():
        regions.put(1, path, data)
    regions.put(0, "d/0/0", files["d/0/0"])
    regions.put(1, "elsewhere", b"x")
    reports: list[Progress] = []
    plan = mirror_prefetch("d", progress=reports.append)
    assert len(plan.files) == 29
    assert plan.present == 1
    assert {path: regions.has(0, path) for path in regions.files(0)} == files
    assert [report.files_done for report in reports] == list(range(1, 30))
    assert reports[-1].bytes_done == reports[-1].bytes_total == reports[-1].bytes_moved == plan.bytes_total
    assert budget.bytes_used == sum(map(len, files.values())) - 100
    assert mirror_plan("d").files == ()


def test_the_first_failure_is_raised_and_the_rest_is_whole(make_regions: Any, budget: TransferBudget):
    regions = make_regions("local", "local")
    for number in range(20):
        regions.put(1, f"d/{number:02}", bytes(10))
    plan = mirror_plan("d")
    os.unlink(f"{regions.prefixes[1]}/d/07")
    with pytest.raises(FileNotFoundError, match="d/07"):
        copy_files(plan.files, plan.destination, Settings())
    assert budget.bytes_used == 10 * len(regions.files(0))
    assert all(regions.has(0, path) == bytes(10) for path in regions.files(0))


def test_several_paths_are_one_plan_and_wrong_ones_are_refused(make_regions: Any):
    regions = make_regions("local", "memory", "local")
    for region, name, data in ((1, "a/x", b"1"), (2, "a/x", b"22"), (2, "b", b"333"), (2, "a/.marin-tmp-1", b"")):
        regions.put(region, name, data)
    plan = mirror_plan("a", "b", f"mirror://{regions.prefixes[2]}/b")
    assert [(file.path, file.version.size, file.source.prefix.url) for file in plan.files] == [
        ("a/x", 1, regions.prefixes[1]),
        ("b", 3, regions.prefixes[2]),
    ]
    assert plan.bytes_total == plan.bytes_charged == 4
    with pytest.raises(FileNotFoundError, match="no region has it"):
        mirror_plan("nowhere")
    with pytest.raises(InvalidRequest, match=r"'\.\.' is refused"):
        mirror_prefetch("../x")
    with pytest.raises(InvalidRequest, match="at least one path"):
        mirror_prefetch()


def test_a_dry_run_tells_everything_and_copies_nothing(make_regions: Any, capsys: pytest.CaptureFixture[str]):
    regions = make_regions("local", "memory")
    regions.put(1, "d/x", bytes(3 * 2**20))
    regions.put(0, "d/y", b"")
    assert command.main(["d", "--dry-run", "--budget-gb", "0.001"]) == 0
    told = capsys.readouterr().out
    assert "3,145,728  memory://" in told
    assert "would copy 1 files, 3.00 MB (3145728 bytes)" in told
    assert f"into {regions.prefixes[0]}; 1 are there" in told
    assert f"from {regions.prefixes[1]}: 3.00 MB" in told
    assert "3.00 MB would be charged; budget left: 1.02 MB of 1.02 MB, which is NOT enough" in told
    assert regions.files(0) == ["d/y"]
    assert command.main(["nowhere"]) == 2
    assert "mirror://nowhere" in capsys.readouterr().err
    assert command.main(["d"]) == 0
    assert "1 files copied (3.00 MB), 1 were there; budget left: " in capsys.readouterr().out
    assert regions.files(0) == ["d/x", "d/y"]


@pytest.mark.process
def test_it_runs_as_a_module(make_regions: Any):
    regions = make_regions("local", "local")
    regions.put(1, "d/x", b"x")
    done = subprocess.run([sys.executable, "-m", "rigging.mirror", "d"], capture_output=True, text=True, check=True)
    assert "1 files copied" in done.stdout
    assert regions.has(0, "d/x") == b"x"
