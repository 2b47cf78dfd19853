"""docs/simulation.md: its commands, on the workload and the fleet that it shows."""

from pathlib import Path

import pytest

from support.marin.programs import run_program
from tests.docs.blocks import blocks_of

pytestmark = [pytest.mark.process, pytest.mark.soak, pytest.mark.timeout(900)]

TRACE = "submit_s,user,duration_s,cpu,band\n0,ann,60,4,batch\n5,joe,30,2,interactive\n"


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    faults, workloads, jobs, fleet = blocks_of("docs/simulation.md")
    for name, text in (("jobs.yaml", jobs.text), ("fleet.yaml", fleet.text), ("jobs.csv", TRACE)):
        (tmp_path / name).write_text(text)
    lines = [*faults.text.splitlines(), *workloads.text.splitlines()]
    ours = [line for line in lines if "pytest" not in line]  # those are the suite's own tests
    assert len(ours) == 5
    for line in ours:
        command = line.replace("uv run ", "").replace("--with matplotlib ", "").replace("--seeds 200", "--seeds 20")
        assert run_program(command, tmp_path, seconds=600).stdout
    assert (tmp_path / "use.png").stat().st_size > 1000
