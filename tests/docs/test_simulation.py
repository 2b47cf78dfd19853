"""docs/simulation.md: its commands, on the workload and the fleet that it shows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TRACE = "submit_s,user,duration_s,cpu,band\n0,ann,60,4,batch\n5,joe,30,2,interactive\n"


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    faults, workloads, jobs, fleet = blocks_of("docs/simulation.md")
    (tmp_path / "jobs.yaml").write_text(jobs.text)
    (tmp_path / "fleet.yaml").write_text(fleet.text)
    (tmp_path / "jobs.csv").write_text(TRACE)
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = 0
    for line in [*faults.text.splitlines(), *workloads.text.splitlines()]:
        if "pytest" in line:
            continue  # the suite's own tests
        command = line.replace("uv run ", "").replace("--seeds 200", "--seeds 20")
        done = subprocess.run(
            ["bash", "-ec", command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        assert done.stdout
        ran += 1
    assert ran == 4
    assert (tmp_path / "use.png").stat().st_size > 1000
