"""What a user gets wrong, and what the command line says: the message and the exit code of each."""

import json
import os
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
def test_a_command_that_fails_ends_with_its_code_and_is_explained(
    cluster: Cluster, workspace: Path, command: str, code: int, said: list[str]
) -> None:
    result = cluster.iris("job", "run", "--", *shlex.split(command), cwd=workspace)
    assert result.code == code, result.text
    assert [words for words in said if words not in result.err] == []
    assert ("before" in result.out) == ("raises.py" in command), "what it printed before is shown"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--cpu 10000 -- true", 3, ["10000", str(os.cpu_count())]),
        ("--memory 900TB -- true", 3, ["memory", "largest"]),
        ("--tpu v5p-8 -- true", 3, ["v5p-8"]),
        ("python raises.py", 2, [" -- "]),
        ("--memmory 1GB -- true", 2, ["--memmory", "--memory "]),
        ("-e NOT_SET_ANYWHERE -- true", 2, ["NOT_SET_ANYWHERE"]),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_could_be(
    cluster: Cluster, workspace: Path, words: str, code: int, said: list[str]
) -> None:
    result = cluster.iris("job", "run", *words.split(), cwd=workspace)
    assert result.code == code, result.text
    told = " ".join(result.err.replace("?", " ").replace("'", " ").split()) + " "
    assert [each for each in said if each not in told] == []


def test_variables_reach_the_task_in_all_three_forms(cluster: Cluster, workspace: Path) -> None:
    words = ["-e", "A", "1", "-e", "B=2", "-e", "FROM_SHELL", "--", "sh", "-c", "echo $A-$B-$FROM_SHELL"]
    result = cluster.iris("job", "run", *words, cwd=workspace, env={"FROM_SHELL": "3"})
    assert result.code == 0, result.text
    assert "1-2-3" in result.out


@pytest.mark.parametrize("options", [(), ("--no-terminate-on-exit",)], ids=["stops", "leaves"])
def test_ctrl_c_stops_the_job_unless_it_is_to_be_left(
    cluster: Cluster, workspace: Path, options: tuple[str, ...]
) -> None:
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


def test_a_controller_that_stays_away_ends_the_wait_with_a_code_of_its_own(
    own_cluster: Cluster, workspace: Path
) -> None:
    command = ["job", "run", "--", "python", "count.py", "600", "0.1"]
    process = own_cluster.start(*command, cwd=workspace, env={"IRIS_RECONNECT_TIMEOUT": "1"})
    assert process.stdout is not None
    assert "line 0" in process.stdout.readline()
    os.kill(own_cluster.controller_pid(), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 6, err
    assert "controller" in err
