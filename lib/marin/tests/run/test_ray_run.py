"""`ray_run` as it is typed: its options, what it says, and how it ends, against a server of the Jobs API."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from marin.run import connection
from marin.run.ray_run import main
from marin.run.submit import run_job
from marin.testing.jobs_server import Job, JobsServer

ROOT = Path(__file__).parents[4]
TUNNEL = """#!{python}
import asyncio, sys


async def pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(reader, writer):
    other_reader, other_writer = await asyncio.open_connection("127.0.0.1", {port})
    await asyncio.gather(pump(reader, other_writer), pump(other_reader, writer))


async def main():
    port = int(sys.argv[sys.argv.index("--port") + 1])
    await (await asyncio.start_server(serve, "127.0.0.1", port)).serve_forever()


asyncio.run(main())
"""
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
    assert f"job {job_id} submitted" in err
    assert f"dashboard: {at.address}/#/jobs/{job_id}" in err
    assert f"ray job submit --address {at.address} --working-dir ." in err
    assert f"job {job_id} succeeded" in err


def test_a_directory_that_the_cluster_has_is_not_sent_again(at: JobsServer) -> None:
    assert [main(COMMAND), main(COMMAND)] == [0, 0]
    assert len([line for line in at.requests if line.startswith("PUT")]) == 1


@pytest.mark.parametrize("no_wait", ["--no_wait", "--no-wait"])
def test_without_waiting_the_id_is_all_of_the_output(
    at: JobsServer, capfd: pytest.CaptureFixture[str], no_wait: str
) -> None:
    at.on_submit = lambda job: None
    assert main([no_wait, *COMMAND]) == 0
    assert capfd.readouterr().out.split() == list(at.jobs)


def test_the_options_in_every_spelling(at: JobsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "m")
    options = (
        "-e A 1 -e B=2 -e MINE --extra tokenize_train --pip_deps six,b[x,y] --pip-deps c --entrypoint-num-cpus 2 "
        "--entrypoint_memory 1GB --submission-id mine --auto-stop"
    )
    assert main([*options.split(), "--entrypoint-resources", '{"TPU": 4}', *COMMAND]) == 0
    body = at.jobs["mine"].body
    assert body["runtime_env"]["env_vars"] == {"A": "1", "B": "2", "MINE": "m"}
    assert body["runtime_env"]["pip"]["packages"] == [
        "fsspec>=2025.3", "tokenizers>=0.20", "transformers>=4.50", "six", "b[x,y]", "c",
    ]  # fmt: skip
    assert (body["entrypoint_num_cpus"], body["entrypoint_memory"]) == (2, 1 << 30)
    assert body["entrypoint_resources"] == {"TPU": 4}


def test_values_of_files_go_along_and_are_shown_nowhere(
    at: JobsServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.env"
    file.write_text("PLAIN=between us\nGIVEN=of the file\n")
    words = ["--env_file", str(file), "-e", "GIVEN=shown", "--submission-id", "mine"]
    assert main([*words, "--dry-run", *COMMAND]) == 0
    assert main([*words, *COMMAND]) == 0
    assert at.jobs["mine"].body["runtime_env"]["env_vars"] == {"PLAIN": "between us", "GIVEN": "shown"}
    out, err = capfd.readouterr()
    assert "between us" not in out + err
    assert '"PLAIN": "[REDACTED]"' in out
    assert '"GIVEN": "shown"' in out
    file.write_text("hunter2\n")
    assert main([*words, *COMMAND]) == 3
    out, err = capfd.readouterr()
    assert f"ray_run: env file {file}, line 1: there is no '='" in err
    assert "hunter2" not in out + err


def test_a_dry_run_shows_the_request_and_sends_nothing(at: JobsServer, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["-e", "HF_TOKEN", "hf_Secret123", "--submission-id", "mine"]
    assert main([*words, "--dry_run", *COMMAND]) == 0
    out, err = capfd.readouterr()
    assert at.requests == []
    assert "hf_Secret123" not in out + err
    shown = json.loads(out)
    assert main([*words, *COMMAND]) == 0
    body = at.jobs["mine"].body
    body["runtime_env"]["env_vars"]["HF_TOKEN"] = "[REDACTED]"
    assert shown["request"] == body
    assert shown["working_dir"]["package"] in at.packages
    assert shown["cluster"] == at.address


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["python", "x.py"], "put -- before the command"),
        (["--"], "no command after --"),
        (["--no_wiat", *COMMAND], "No such option"),
        (["--no_wait", "--auto-stop", *COMMAND], "--auto-stop"),
        (["-e", *COMMAND], "needs a variable"),
        (["-e", "UNSET_HERE", *COMMAND], "not set in your environment"),
        (["--entrypoint-memory", "4", *COMMAND], "below the least"),
        (["--entrypoint-resources", "TPU=4", *COMMAND], "is not JSON"),
        (["--entrypoint-resources", '["TPU"]', *COMMAND], "write names and amounts"),
        (["--entrypoint-resources", '{"TPU": "4"}', *COMMAND], "write names and amounts"),
        (["--entrypoint-resources", '{"TPU": true}', *COMMAND], "write names and amounts"),
        (["--entrypoint-resources", '{"TPU": -1}', *COMMAND], "write names and amounts"),
        (["--entrypoint-num-cpus", "-1", *COMMAND], "from 0"),
        (["--working-dir", "none", *COMMAND], "no such folder"),
        (["--cluster", "a", "--address", "b", *COMMAND], "not both"),
        # Ray takes it, and its API finds the job by no address: it could be neither followed nor stopped.
        (["--submission-id", "a/b", *COMMAND], "--submission-id 'a/b': an id has letters"),
        (["--submission-id", "", *COMMAND], "--submission-id ''"),
        (["--submission-id", "a b?", *COMMAND], "--submission-id 'a b?'"),
        (["--pip_deps", "numpy,?x", *COMMAND], "'?x' is no package for pip"),
        (["--pip_deps", "numpy torch", *COMMAND], "'numpy torch' is no package"),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_done(
    project: Path, capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(words) == 2
    assert said in capfd.readouterr().err


def test_an_unreachable_cluster_is_told_in_seconds(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", f"http://127.0.0.1:{taken.getsockname()[1]}")
        begin = time.monotonic()
        assert main(COMMAND) == 5
    assert time.monotonic() - begin < 5
    err = capfd.readouterr().err
    assert "no Ray cluster answers at http://127.0.0.1:" in err
    assert "(RAY_ADDRESS): Connect" in err
    assert "ray dashboard infra/marin-cluster.yaml" in err


def test_what_is_no_ray_cluster_is_told(at: JobsServer, capfd: pytest.CaptureFixture[str]) -> None:
    at.failing = {"/api/version": 404}
    assert main(COMMAND) == 5
    assert "has no Jobs API" in capfd.readouterr().err


def test_a_token_is_sent_to_a_cluster_that_asks_for_it(at: JobsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    at.token = "t0ken"
    (Path(os.environ["HOME"]) / ".ray").mkdir()
    (Path(os.environ["HOME"]) / ".ray" / "auth_token").write_text("t0ken\n")
    assert main(COMMAND) == 0


@pytest.mark.parametrize(("token", "said"), [("", "there is none"), ("wr0ng", "is not the cluster's")])
def test_a_missing_or_wrong_token_is_told_and_not_shown(
    at: JobsServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], token: str, said: str
) -> None:
    at.token = "t0ken"
    monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    assert main(COMMAND) == 3
    err = capfd.readouterr().err
    assert said in err
    assert "~/.ray/auth_token" in err
    assert "wr0ng" not in err


def test_a_refused_job_says_what_the_cluster_said(at: JobsServer, capfd: pytest.CaptureFixture[str]) -> None:
    at.failing = {"/api/jobs/": 400}
    assert main(COMMAND) == 3
    assert "ValueError: told to fail" in capfd.readouterr().err


def test_a_cluster_by_its_file_is_reached_through_a_tunnel(
    at: JobsServer, project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The tunnel is a stand-in for `ray dashboard`: a server that passes everything on."""
    monkeypatch.delenv("RAY_ADDRESS")
    (project / "infra").mkdir()
    (project / "infra" / "marin-near.yaml").write_text("cluster_name: near\nprovider: {type: local}\n")
    program = project.parent / "bin" / "ray"
    program.parent.mkdir()
    program.write_text(TUNNEL.format(python=sys.executable, port=at.address.rpartition(":")[2]))
    program.chmod(0o755)
    monkeypatch.setattr(connection.shutil, "which", lambda name, path=None: str(program))
    assert main(["--cluster", "near", *COMMAND]) == 0
    out, err = capfd.readouterr()
    assert out == "hello\n"
    assert f"need `ray dashboard {project}/infra/marin-near.yaml`" in err
    assert "dashboard: http://127.0.0.1:8265/#/jobs/" in err


def interrupt(_job: Job) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_while_it_is_submitted_stops_what_has_come_of_it(
    at: JobsServer, capfd: pytest.CaptureFixture[str]
) -> None:
    at.on_submit, at.submit_seconds = interrupt, 60
    assert main(COMMAND) == 130
    (job_id,) = at.jobs
    assert at.stops == [job_id]
    assert f"job {job_id} is stopped" in capfd.readouterr().err


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_interrupt_leaves_at_once_and_what_may_run_has_been_told(
    at: JobsServer, capfd: pytest.CaptureFixture[str], first: signal.Signals
) -> None:
    at.on_submit, at.submit_seconds = lambda _: os.kill(os.getpid(), first), 60
    at.on_stop, at.stop_seconds = interrupt, 60
    assert main(["--auto-stop", "--submission-id", "mine", *COMMAND]) == 130
    assert f"`ray job stop --address {at.address} mine` stops it" in capfd.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_with_auto_stop_other_signals_do_so_too(
    at: JobsServer, capfd: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    at.on_submit, at.submit_seconds = lambda _: os.kill(os.getpid(), number), 60
    assert main(["--auto-stop", *COMMAND]) == 128 + number
    (job_id,) = at.jobs
    assert at.stops == [job_id]
    assert f"job {job_id} is stopped" in capfd.readouterr().err


def test_without_it_they_name_the_job_that_may_run(at: JobsServer, capfd: pytest.CaptureFixture[str]) -> None:
    at.on_submit, at.submit_seconds = lambda _: os.kill(os.getpid(), signal.SIGTERM), 60
    assert main(["--submission-id", "mine", *COMMAND]) == 143
    assert at.stops == []
    err = capfd.readouterr().err
    assert f"job mine may have been submitted, and may run: `ray job stop --address {at.address} mine`" in err


def test_before_the_submission_they_say_that_there_is_none(at: JobsServer, capfd: pytest.CaptureFixture[str]) -> None:
    at.on_package, at.package_seconds = lambda: os.kill(os.getpid(), signal.SIGTERM), 60
    assert main(["--auto-stop", *COMMAND]) == 143
    assert "nothing was submitted" in capfd.readouterr().err
    assert (at.jobs, at.stops) == ({}, [])


def test_whether_a_job_was_submitted_may_be_unknown(at: JobsServer, capfd: pytest.CaptureFixture[str]) -> None:
    at.failing = {"/api/jobs/": 0}
    assert main(["--submission-id", "mine", *COMMAND]) == 5
    assert f"`ray job status --address {at.address} mine` tells" in capfd.readouterr().err


def test_a_cluster_that_is_being_started_is_waited_for(at: JobsServer, capfd: pytest.CaptureFixture[str]) -> None:
    at.unready = 2
    assert main(COMMAND) == 0
    assert capfd.readouterr().err.count("has nothing to start jobs with yet") == 1


def test_a_cluster_that_cannot_start_jobs_is_given_up(
    at: JobsServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_job, "READY_SECONDS", 0)
    at.unready = 9
    assert main(COMMAND) == 5
    err = capfd.readouterr().err
    assert "No available agent" in err
    assert "dashboard_agent.log" in err
    assert "is not known" not in err


def test_an_unknown_cluster_is_told(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--cluster", "nowhere", *COMMAND]) == 4
    assert "no cluster named 'nowhere'" in capfd.readouterr().err


@pytest.mark.parametrize("program", [["marin/run/ray_run.py"], ["-m", "marin.run.ray_run"]])
def test_help_is_quick_and_loads_nothing_heavy(program: list[str]) -> None:
    env = {**os.environ, "PYTHONPATH": "", "PYTHONPROFILEIMPORTTIME": "1"}
    command = [sys.executable, *program, "--help"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert "--pip-deps" in done.stdout
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "click" in loaded
    assert loaded.isdisjoint({"ray", "aiohttp", "yaml", "fsspec", "draccus", "grpc"})


@pytest.mark.parametrize("path", ["", "."])
def test_the_folder_marin_of_the_root_shadows_nothing(path: str) -> None:
    code = "import marin, marin.execution, marin.run.ray_run; print(marin.__file__, marin.run.ray_run.__file__)"
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    source = ROOT / "lib" / "marin" / "src" / "marin"
    assert done.stdout.split() == [str(source / "__init__.py"), str(source / "run" / "ray_run.py")]
    assert not list((ROOT / "marin").rglob("__init__.py"))


def test_a_secret_that_was_typed_leaves_the_process_list(at: JobsServer, project: Path) -> None:
    at.on_submit = lambda job: None
    command = [sys.executable, "-m", "marin.run.ray_run", "-e", "HF_TOKEN", "hf_Secret123", *COMMAND]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "submitted" in line:
                break
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        at.job.end("FAILED", 9)
        assert process.stderr.read()
        assert process.wait() == 9
    assert b"HF_TOKEN" in words
    assert b"hf_Secret123" not in words
    assert at.job.body["runtime_env"]["env_vars"]["HF_TOKEN"] == "hf_Secret123"


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


def test_without_ray_the_package_to_install_is_named(
    project: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "marin.run.submit.run_job", None)
    assert main(COMMAND) == 5
    assert "jobs on Ray need `pip install 'marin[ray]'`" in capfd.readouterr().err


@pytest.mark.parametrize(("raised", "code"), [(click.Abort, 130), (KeyboardInterrupt, 130)])
def test_a_command_that_is_interrupted_ends_as_shells_expect(
    project: Path, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException], code: int
) -> None:
    def interrupt(*_: object) -> int:
        raise raised

    monkeypatch.setattr("marin.run.ray_run.run", interrupt)
    assert main(COMMAND) == code
