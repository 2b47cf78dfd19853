"""`ray_run` as it is typed: its options, what it says, and how it ends, against a server of the Jobs API."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import click
import pytest

from marin.run import connection
from marin.run.ray_run import main
from marin.run.submit import run_job
from rigging.project.code_state import code_variables, handed_code_state
from support.marin.jobs_server import Job, JobsServer

ROOT = Path(__file__).parents[4]
COMMAND = ("--", "python", "experiments/hello_world.py")


@pytest.fixture
def at(server: JobsServer, project: Path, monkeypatch: pytest.MonkeyPatch) -> JobsServer:
    """The server as the cluster of RAY_ADDRESS; each job succeeds at once."""
    monkeypatch.setenv("RAY_ADDRESS", server.address)

    def succeed(job: Job) -> None:
        job.log = "hello\n"
        job.end("SUCCEEDED", 0)

    server.on_submit = succeed
    return server


def test_a_job_with_all_that_it_needs(at: JobsServer, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(COMMAND) == 0
    out, err = capfd.readouterr()
    assert out == "hello\n"
    (job_id,) = at.jobs
    assert at.job.body["entrypoint"] == "python experiments/hello_world.py"
    assert at.job.body["runtime_env"]["pip"]["packages"] == ["fsspec>=2025.3"]
    assert at.job.body["runtime_env"]["working_dir"] == f"gcs://{next(iter(at.packages))}"
    assert at.files()["experiments/hello_world.py"] == b"print('hello')\n"
    for said in (
        f"job {job_id} submitted",
        f"dashboard: {at.address}/#/jobs/{job_id}",
        f"ray job submit --address {at.address} --working-dir .",
        f"job {job_id} succeeded",
    ):
        assert said in err
    assert main(COMMAND) == 0
    sent = [line for line in at.requests if line.startswith("PUT")]
    assert len(sent) == 1, "a directory that the cluster has is not sent again"


def test_another_version_of_ray_is_told_once(
    at: JobsServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for own, told in (("2.60.0", 0), ("2.49.0", 1)):
        monkeypatch.setattr(run_job.metadata, "version", Mock(return_value=own))
        assert main(COMMAND) == 0
        assert capfd.readouterr().err.count(f"the cluster has Ray 2.60.0, and this environment {own}") == told


@pytest.mark.parametrize(
    ("failing", "code", "said"),
    [
        ({"/api/version": 404}, 5, ["has no Jobs API"]),
        ({"/api/jobs/": 400}, 3, ["ValueError: told to fail"]),
        ({"/api/jobs/": 0}, 5, ["`ray job status --address ADDRESS mine` tells"]),
    ],
    ids=["no cluster", "refused", "cut"],
)
def test_what_the_cluster_answers_decides_the_exit_code(
    at: JobsServer, capfd: pytest.CaptureFixture[str], failing: dict[str, int], code: int, said: list[str]
) -> None:
    at.failing = failing
    assert main(["--submission-id", "mine", *COMMAND]) == code
    err = capfd.readouterr().err.replace(at.address, "ADDRESS")
    assert [words for words in said if words not in err] == []


@pytest.mark.parametrize(
    ("token", "code", "said"),
    [("t0ken", 0, "succeeded"), ("", 3, "no token was found"), ("wr0ng", 3, "is not the cluster's")],
)
def test_a_token_is_sent_and_one_that_is_missing_or_wrong_is_told_and_not_shown(
    at: JobsServer, capfd: pytest.CaptureFixture[str], token: str, code: int, said: str
) -> None:
    at.token = "t0ken"
    file = Path(os.environ["HOME"]) / ".ray" / "auth_token"
    file.parent.mkdir()
    file.write_text(f"{token}\n")
    assert main(COMMAND) == code
    err = capfd.readouterr().err
    assert said in err
    assert ("~/.ray/auth_token" in err) == bool(code)
    assert "wr0ng" not in err


def send(number: int) -> Callable[..., None]:
    return lambda *_: os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("auto_stop", [True, False])
def test_a_signal_while_it_is_submitted_stops_what_has_come_of_it_or_names_it(
    at: JobsServer, capfd: pytest.CaptureFixture[str], number: signal.Signals, auto_stop: bool
) -> None:
    at.on_submit, at.submit_seconds = send(number), 60
    assert main([*(["--auto-stop"] if auto_stop else []), "--submission-id", "mine", *COMMAND]) == 128 + number
    err = capfd.readouterr().err
    if auto_stop or number == signal.SIGINT:
        assert at.stops == ["mine"]
        assert "job mine is stopped" in err
    else:
        assert at.stops == []
        assert f"job mine may have been submitted, and may run: `ray job stop --address {at.address} mine`" in err


def test_options(at: JobsServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MINE", "m")
    options = (
        "-e A 1 -e B=2 -e MINE --extra tokenize_train --pip_deps six,b[x,y] --pip-deps c --entrypoint-num-cpus 2 "
        "--entrypoint_memory 1GB --submission-id mine --auto-stop"
    )
    assert main([*options.split(), "--entrypoint-resources", '{"TPU": 4}', *COMMAND]) == 0
    body = at.jobs["mine"].body
    assert body["runtime_env"]["env_vars"] == {"A": "1", "B": "2", "MINE": "m"}
    packages = ["fsspec>=2025.3", "tokenizers>=0.20", "transformers>=4.50", "six", "b[x,y]", "c"]
    assert body["runtime_env"]["pip"]["packages"] == packages
    assert (body["entrypoint_num_cpus"], body["entrypoint_memory"]) == (2, 1 << 30)
    assert body["entrypoint_resources"] == {"TPU": 4}
    monkeypatch.setattr(run_job, "code_variables", code_variables)
    assert main(["--submission-id", "code", *COMMAND]) == 0
    handed = handed_code_state(at.jobs["code"].body["runtime_env"]["env_vars"])
    assert handed is not None
    assert set(handed.untracked) == {"experiments/hello_world.py"}
    assert "MARIN_CODE" not in capfd.readouterr().err
    at.on_submit = lambda job: None
    for no_wait in ("--no_wait", "--no-wait"):
        capfd.readouterr()
        assert main([no_wait, "--submission-id", no_wait[2:], *COMMAND]) == 0
        assert capfd.readouterr().out == f"{no_wait[2:]}\n", "without waiting the id is all of the output"


def test_a_dry_run_shows_no_secrets(at: JobsServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.env"
    file.write_text("PLAIN=between us\nGIVEN=of the file\n")
    words = ["--env_file", str(file), "-e", "GIVEN=shown", "-e", "HF_TOKEN", "hf_Secret123", "--submission-id", "mine"]
    assert main([*words, "--dry_run", *COMMAND]) == 0
    assert at.requests == []
    shown, err = capfd.readouterr()
    assert main([*words, *COMMAND]) == 0
    body = at.jobs["mine"].body
    assert body["runtime_env"]["env_vars"] == {"PLAIN": "between us", "GIVEN": "shown", "HF_TOKEN": "hf_Secret123"}
    body["runtime_env"]["env_vars"] |= {"PLAIN": "[REDACTED]", "HF_TOKEN": "[REDACTED]"}
    found = json.loads(shown)
    assert (found["request"], found["cluster"]) == (body, at.address)
    assert found["working_dir"]["package"] in at.packages
    file.write_text("hunter2\n")
    assert main([*words, *COMMAND]) == 3
    out, told = capfd.readouterr()
    assert f"ray_run: env file {file}, line 1: there is no '='" in told
    for secret in ("between us", "hf_Secret123", "hunter2"):
        assert secret not in shown + err + out + told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["python", "x.py"], "put -- before the command"),
        (["--"], "no command after --"),
        (["--no_wiat", *COMMAND], "No such option"),
        (["--no_wait", "--auto-stop", *COMMAND], "--auto-stop"),
        (["-e", *COMMAND], "needs a variable"),
        (["-e", "UNSET_HERE", *COMMAND], "not set in your environment"),
        (["--entrypoint-memory", "4", *COMMAND], "below the minimum"),
        (["--entrypoint-resources", "TPU=4", *COMMAND], "is not JSON"),
        (["--entrypoint-resources", '["TPU"]', *COMMAND], "write names and amounts"),
        (["--entrypoint-resources", '{"TPU": "4"}', *COMMAND], "write names and amounts"),
        (["--entrypoint-resources", '{"TPU": true}', *COMMAND], "write names and amounts"),
        (["--entrypoint-resources", '{"TPU": -1}', *COMMAND], "write names and amounts"),
        (["--entrypoint-num-cpus", "-1", *COMMAND], "from 0"),
        (["--working-dir", "none", *COMMAND], "no such folder"),
        (["--cluster", "a", "--address", "b", *COMMAND], "not both"),
        # Ray takes it, and its API finds the job by no address: it could be neither followed nor stopped.
        (["--submission-id", "a/b", *COMMAND], "--submission-id 'a/b': use at most 200 letters"),
        (["--submission-id", "", *COMMAND], "--submission-id ''"),
        (["--pip_deps", "numpy,?x", *COMMAND], "'?x' is not a package for pip"),
    ],
)
def test_a_wrong_option_is_named(project: Path, capfd: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(words) == 2
    assert said in capfd.readouterr().err


def test_unreachable(project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", f"http://127.0.0.1:{taken.getsockname()[1]}")
        assert main(COMMAND) == 5
    err = capfd.readouterr().err
    assert "no Ray cluster answers at http://127.0.0.1:" in err
    assert "(RAY_ADDRESS): Connect" in err
    assert "ray dashboard infra/marin-cluster.yaml" in err


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_interrupt_leaves_at_once_and_what_may_run_has_been_told(
    at: JobsServer, capfd: pytest.CaptureFixture[str], first: signal.Signals
) -> None:
    at.on_submit, at.submit_seconds = send(first), 60
    at.on_stop, at.stop_seconds = send(signal.SIGINT), 60
    assert main(["--auto-stop", "--submission-id", "mine", *COMMAND]) == 130
    assert f"`ray job stop --address {at.address} mine` stops it" in capfd.readouterr().err


def test_a_signal_before_the_submission_says_so(at: JobsServer, capfd: pytest.CaptureFixture[str]) -> None:
    at.on_package, at.package_seconds = send(signal.SIGTERM), 60
    assert main(["--auto-stop", *COMMAND]) == 143
    assert "nothing was submitted" in capfd.readouterr().err
    assert (at.jobs, at.stops) == ({}, [])


def test_a_cluster_that_is_being_started_is_waited_for_and_given_up(
    at: JobsServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    at.unready = 2
    assert main(COMMAND) == 0
    assert capfd.readouterr().err.count("cannot start jobs yet") == 1
    monkeypatch.setattr(run_job, "READY_SECONDS", 0)
    at.unready = 9
    assert main(COMMAND) == 5
    err = capfd.readouterr().err
    assert "No available agent" in err
    assert "dashboard_agent.log" in err
    assert "is not known" not in err


def test_ends_at_once(project: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["--cluster", "nowhere", *COMMAND]) == 4
    assert "no cluster named 'nowhere'" in capfd.readouterr().err
    for raised in (click.Abort, KeyboardInterrupt):
        with monkeypatch.context() as patch:
            patch.setattr("marin.run.ray_run.run", Mock(side_effect=raised))
            assert main(COMMAND) == 130
    monkeypatch.setitem(sys.modules, "marin.run.submit.run_job", None)
    assert main(COMMAND) == 3
    assert "ray_run needs the extra `ray`" in capfd.readouterr().err


@pytest.mark.process
@pytest.mark.parametrize("program", [["marin/run/ray_run.py"], ["-m", "marin.run.ray_run"]])
def test_help_is_quick_and_loads_nothing_heavy(program: list[str]) -> None:
    env = {**os.environ, "PYTHONPATH": "", "PYTHONPROFILEIMPORTTIME": "1"}
    command = [sys.executable, *program, "--help"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert "--pip-deps" in done.stdout
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "click" in loaded
    assert loaded.isdisjoint({"ray", "aiohttp", "yaml", "fsspec", "draccus", "grpc"})
    code = "import marin, marin.execution, marin.run.ray_run; print(marin.__file__)"
    here = {**os.environ, "PYTHONPATH": "."}
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=here, capture_output=True, text=True, check=True)
    source = ROOT / "lib" / "marin" / "src" / "marin" / "__init__.py"
    assert told.stdout.strip() == str(source), "the folder marin of the root shadows nothing"


@pytest.mark.process
def test_a_secret_that_was_typed_leaves_the_process_list(at: JobsServer, project: Path) -> None:
    at.on_submit = lambda job: None
    command = [sys.executable, "-m", "marin.run.ray_run", "-e", "HF_TOKEN", "hf_Secret123", *COMMAND]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert any("submitted" in line for line in process.stderr)
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        at.job.end("FAILED", 9)
        assert process.stderr.read()
        assert process.wait() == 9
    assert b"HF_TOKEN" in words
    assert b"hf_Secret123" not in words
    assert at.job.body["runtime_env"]["env_vars"]["HF_TOKEN"] == "hf_Secret123"


@pytest.mark.process
def test_a_job_is_followed_to_its_end_when_nobody_reads_its_output(at: JobsServer, project: Path) -> None:
    def print_much(job: Job) -> None:
        job.log = "line\n" * 30
        job.end("FAILED", 5)

    at.on_submit = print_much
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "marin.run.ray_run", *COMMAND]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writing)
    assert done.returncode == 5
    assert "output is not shown: Broken pipe" in done.stderr


def test_a_cluster_by_its_file_is_reached_through_a_tunnel(
    at: JobsServer, project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_ADDRESS")
    (project / "infra").mkdir()
    (project / "infra" / "marin-near.yaml").write_text("cluster_name: near\nprovider: {type: local}\n")
    monkeypatch.setattr(connection, "open_connection", lambda *_, **__: contextlib.nullcontext(at.address))
    assert main(["--cluster", "near", *COMMAND]) == 0
    out, err = capfd.readouterr()
    assert out == "hello\n"
    assert f"need `ray dashboard {project}/infra/marin-near.yaml`" in err
    assert "dashboard: http://127.0.0.1:8265/#/jobs/" in err
