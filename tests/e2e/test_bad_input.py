"""What a user gets wrong, and what the command line says: the message and the exit code of each."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e


def run_job(cluster, workspace: Path, *arguments: str, **kwargs):
    return cluster.iris("job", "run", *arguments, cwd=workspace, **kwargs)


def test_a_command_that_does_not_exist_fails_the_job_and_is_named(cluster, workspace):
    result = run_job(cluster, workspace, "--", "no-such-command", "--flag")
    assert result.code == 127, result.text
    assert "no-such-command" in result.err
    assert "not found" in result.err


def test_a_module_that_fails_to_import_shows_pythons_words(cluster, workspace):
    result = run_job(cluster, workspace, "--", "python", "-m", "experiments.missing")
    assert result.code == 1, result.text
    assert "No module named 'experiments'" in result.err or "No module named experiments" in result.err


def test_a_step_that_raises_shows_its_traceback_and_what_it_printed_before(cluster, workspace):
    result = run_job(cluster, workspace, "--", "python", "raises.py")
    assert result.code == 1, result.text
    assert "before" in result.out
    assert "ValueError: the step is wrong" in result.err
    assert "failed" in result.err.splitlines()[-1] or "iris job logs" in result.err


def test_the_commands_own_exit_code_comes_back(cluster, workspace):
    result = run_job(cluster, workspace, "--", "sh", "-c", "exit 37")
    assert result.code == 37, result.text
    assert "exit code 37" in result.err


def test_an_exit_by_signal_is_128_plus_the_signal_and_is_named(cluster, workspace):
    result = run_job(cluster, workspace, "--", "sh", "-c", "kill -SEGV $$")
    assert result.code == 128 + signal.SIGSEGV, result.text
    assert "SIGSEGV" in result.err


def test_a_request_no_worker_could_ever_meet_is_refused_with_the_largest_there_is(cluster, workspace):
    result = run_job(cluster, workspace, "--cpu", "10000", "--", "true")
    assert result.code == 3, result.text
    assert "10000" in result.err
    assert f"{os.cpu_count()}" in result.err
    assert result.seconds < 20


def test_memory_beyond_every_worker_is_refused(cluster, workspace):
    result = run_job(cluster, workspace, "--memory", "900TB", "--", "true")
    assert result.code == 3, result.text
    assert "memory" in result.err
    assert "largest" in result.err


def test_an_accelerator_nobody_has_is_refused_not_pending_for_ever(cluster, workspace):
    result = run_job(cluster, workspace, "--tpu", "v5p-8", "--", "true")
    assert result.code == 3, result.text
    assert "v5p-8" in result.err


def test_an_unknown_tpu_type_is_refused_with_the_nearest_there_is(cluster, workspace):
    result = run_job(cluster, workspace, "--tpu", "v5p-9", "--", "true")
    assert result.code in (2, 3), result.text
    assert "v5p-9" in result.err
    assert "v5p-8" in result.err


def test_hundreds_of_untracked_megabytes_are_refused_with_the_paths_and_the_way_out(cluster, workspace):
    (workspace / "checkpoints").mkdir()
    for name, size in (("big.bin", 300 << 20), ("small.bin", 5 << 20)):
        with open(workspace / "checkpoints" / name, "wb") as file:
            file.truncate(size)
    result = run_job(cluster, workspace, "--", "true")
    assert result.code == 3, result.text
    assert "checkpoints/big.bin" in result.err
    assert ".gitignore" in result.err
    (workspace / ".gitignore").write_text("checkpoints/\n")
    assert run_job(cluster, workspace, "--", "true").code == 0


def test_a_missing_separator_is_a_usage_error(cluster, workspace):
    result = run_job(cluster, workspace, "python", "raises.py")
    assert result.code == 2, result.text
    assert " -- " in result.err


def test_an_unknown_option_is_never_part_of_the_command(cluster, workspace):
    result = run_job(cluster, workspace, "--memmory", "1GB", "--", "true")
    assert result.code == 2, result.text
    assert "--memmory" in result.err
    assert "--memory" in result.err.replace("--memmory", "")


def test_an_unset_variable_is_named_and_eats_no_word(cluster, workspace):
    result = run_job(cluster, workspace, "-e", "NOT_SET_ANYWHERE", "--", "true")
    assert result.code == 2, result.text
    assert "NOT_SET_ANYWHERE" in result.err


def test_variables_reach_the_task_in_all_three_forms(cluster, workspace):
    result = run_job(
        cluster,
        workspace,
        "-e",
        "A",
        "1",
        "-e",
        "B=2",
        "-e",
        "FROM_SHELL",
        "--",
        "sh",
        "-c",
        "echo $A-$B-$FROM_SHELL",
        env={"FROM_SHELL": "3"},
    )
    assert result.code == 0, result.text
    assert "1-2-3" in result.out


def test_an_unknown_extra_fails_with_the_known_ones(cluster, workspace):
    (workspace / "pyproject.toml").write_text(
        '[project]\nname = "demo"\nversion = "0"\nrequires-python = ">=3.11"\n'
        "[project.optional-dependencies]\nknown = []\n[tool.uv]\npackage = false\n"
    )
    subprocess.run(["uv", "lock", "--quiet", "--offline"], cwd=workspace, check=True)
    assert run_job(cluster, workspace, "--extra", "known", "--", "python", "-c", "pass").code == 0
    result = run_job(cluster, workspace, "--extra", "unknwon", "--", "python", "-c", "pass")
    assert result.code != 0, result.text
    assert "unknwon" in result.err
    assert "known" in result.err.replace("unknwon", "")


@pytest.fixture
def sleeper(cluster, workspace):
    """A running `job run` whose command has printed its first line; its arguments can be extended."""

    def start(*options: str) -> "tuple[subprocess.Popen[str], str]":
        name = f"sleeper-{os.urandom(3).hex()}"
        process = cluster.start(
            "job", "run", "--job-name", name, *options, "--", "python", "count.py", "600", "0.1", cwd=workspace
        )
        assert process.stdout is not None
        assert "line 0" in process.stdout.readline()
        return process, name

    return start


def state_of(cluster, name: str) -> str:
    import json

    summary = cluster.iris("job", "summary", name, "--json")
    assert summary.code == 0, summary.text
    return str(json.loads(summary.out)["state"])


def test_ctrl_c_stops_the_job_and_waits_for_it(cluster, sleeper):
    process, name = sleeper()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "stopped" in err
    assert state_of(cluster, name) == "killed"


def test_ctrl_c_leaves_the_job_running_when_asked_to(cluster, sleeper):
    process, name = sleeper("--no-terminate-on-exit")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "iris job logs" in err
    assert "iris job stop" in err
    assert state_of(cluster, name) == "running"
    assert cluster.iris("job", "stop", name).code == 0
    assert state_of(cluster, name) == "killed"


def test_a_second_ctrl_c_leaves_at_once_and_says_how_to_stop_the_job(cluster, workspace):
    stubborn = "trap '' TERM; echo armed; sleep 600 & while true; do wait; done"
    process = cluster.start("job", "run", "--job-name", "stubborn", "--", "sh", "-c", stubborn, cwd=workspace)
    assert process.stdout is not None
    assert process.stderr is not None
    assert "armed" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    said = ""
    while "stopping" not in said:
        said = process.stderr.readline()
        assert said, "the command ended without a word about stopping"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130, err
    assert "iris job stop" in err
    assert cluster.iris("job", "stop", "stubborn").code == 0


def test_no_wait_returns_the_id_and_says_how_to_follow_and_stop(cluster, workspace):
    result = run_job(cluster, workspace, "--no-wait", "--", "python", "count.py", "600", "0.1")
    assert result.code == 0, result.text
    job_id = result.out.strip()
    assert job_id.startswith("/")
    assert f"iris job logs -f {job_id}" in result.err
    assert f"iris job stop {job_id}" in result.err
    assert cluster.iris("job", "stop", job_id).code == 0


def test_a_controller_that_stays_away_ends_the_wait_with_a_code_of_its_own(own_cluster, workspace):
    process = own_cluster.start(
        "job", "run", "--", "python", "count.py", "600", "0.1", cwd=workspace, env={"IRIS_RECONNECT_TIMEOUT": "1"}
    )
    assert process.stdout is not None
    assert "line 0" in process.stdout.readline()
    os.kill(own_cluster.controller_pid(), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 6, err
    assert "controller" in err
