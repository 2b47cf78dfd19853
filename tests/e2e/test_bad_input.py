"""How `iris job run` ends: with the code of a command that fails, and at Ctrl-C."""

import json
import shlex
import signal
from pathlib import Path

import pytest

from support.iris.embedded_cluster import Cluster

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("no-such-command --flag", 127, ["no-such-command", "not found"]),
        ("python raises.py", 1, ["ValueError: the step is wrong", "failed"]),
        ("sh -c 'exit 37'", 37, ["exit code 37"]),
        ("sh -c 'kill -SEGV $$'", 128 + signal.SIGSEGV, ["SIGSEGV"]),
    ],
)
def test_a_command_that_fails(cluster: Cluster, workspace: Path, command: str, code: int, said: list[str]) -> None:
    result = cluster.iris("job", "run", "--", *shlex.split(command), cwd=workspace)
    assert result.code == code, result.text
    assert [words for words in said if words not in result.err] == []
    assert ("before" in result.out) == ("raises.py" in command), "what it printed before is shown"


@pytest.mark.parametrize("options", [(), ("--no-terminate-on-exit",)], ids=["stops", "leaves"])
def test_ctrl_c_stops_a_job_or_leaves_it(cluster: Cluster, workspace: Path, options: tuple[str, ...]) -> None:
    name = f"sleeper-{len(options)}"
    command = ["--job-name", name, *options, "--", "python", "count.py", "600", "0.1"]
    process = cluster.start("job", "run", *command, cwd=workspace)
    assert process.stdout is not None
    assert "line 0" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    state = json.loads(cluster.iris("job", "summary", name, "--json").out)["state"]
    if options:
        assert "iris job logs" in err
        assert "iris job stop" in err
        assert state == "running"
        assert cluster.iris("job", "stop", name).code == 0
    else:
        assert "stopped" in err
        assert state == "killed"
