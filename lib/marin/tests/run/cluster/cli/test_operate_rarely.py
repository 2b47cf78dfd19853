"""The operation of a cluster where it does not go as usual: refusals, second halves, clusters of others, Ctrl-C."""

import asyncio
import json
import sys
from pathlib import Path
from unittest.mock import Mock

import click
import pytest
import yaml

from marin.run.cluster.cli.commands import main
from marin.run.cluster.jobs.backup import SavedJob
from marin.run.cluster.jobs.unpacking import JOB_PREFIX, unpack_on_head
from marin.run.submit.jobs_api import JobInfo
from rigging.errors import Conflict
from support.marin.fake_ray import FakeRay
from support.marin.jobs_server import Job, JobsServer

pytestmark = pytest.mark.process

FILE = "infra/marin-cluster.yaml"
Output = pytest.CaptureFixture[str]


def test_update_of_a_cluster_that_others_started_is_asked_about(ray: FakeRay, capsys: Output) -> None:
    assert main(["update"]) == 3
    said = capsys.readouterr().err
    assert "not started from here" in said
    assert "Apply the file? There is no terminal to ask; use --yes" in said
    assert "up" not in [words[0] for words in ray.calls()]
    assert main(["update", "--yes"]) == 0
    assert ray.calls()[-1] == ["up", "-y", "--no-restart", FILE]
    assert main(["update"]) == 0, "from now on it is known"


def test_what_runs_in_the_terminal_has_rays_own_exit_code(ray: FakeRay) -> None:
    ray.set(codes={"monitor": 3, "attach": 4})
    assert main(["monitor", "--lines", "5"]) == 3
    assert main(["ssh"]) == 4
    assert ray.calls() == [["monitor", "--lines", "5", FILE], ["attach", FILE]]


def test_a_cluster_that_cannot_start_jobs_yet_is_waited_for(
    ray: FakeRay, server: JobsServer, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"submission_id": "job-1", "entrypoint": "true"}
    (tmp_path / "jobs.json").write_text(json.dumps([{"package": "", "body": body}]))
    server.unready = 2
    assert main(["restart", "--resubmit", str(tmp_path)]) == 0
    assert list(server.jobs) == ["job-1"]
    assert json.loads((tmp_path / "jobs.json").read_text()) == []
    (tmp_path / "jobs.json").write_text(json.dumps([{"package": "", "body": body}]))
    server.unready = 99
    monkeypatch.setattr("marin.run.cluster.cli.jobs.READY_SECONDS", 0.0)
    assert main(["restart", "--resubmit", str(tmp_path)]) == 5
    assert len(json.loads((tmp_path / "jobs.json").read_text())) == 1, "it is kept for another try"


def test_a_no_and_a_wrong_word_end_a_command(ray: FakeRay, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    for answer in (click.Abort, KeyboardInterrupt):
        confirm = Mock(side_effect=answer)
        monkeypatch.setattr("marin.run.cluster.cli.context.click.confirm", confirm)
        assert main(["down"]) == 130
        assert confirm.call_args[0] == ("Remove all VMs of marin-us-central2, with everything that runs on them?",)
    assert "down" not in [words[0] for words in ray.calls()]
    assert main(["dwon"]) == 2
    assert "No such command 'dwon'" in capsys.readouterr().err


def test_ctrl_c_is_for_the_program_in_the_terminal_alone(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Mock()
    monkeypatch.setattr("marin.run.cluster.execute.subprocess.Popen", lambda *_, **__: program)
    program.wait.side_effect = [KeyboardInterrupt, KeyboardInterrupt, -2]
    assert main(["monitor"]) == 130
    program.terminate.assert_not_called()
    program.wait.side_effect = [SystemExit(143), 0]
    with pytest.raises(SystemExit):
        main(["monitor"])
    program.terminate.assert_called_once_with()


def test_a_type_that_has_nothing_of_its_own_cannot_be_asked_for(ray: FakeRay, project: Path, capsys: Output) -> None:
    file = project / FILE
    config = yaml.safe_load(file.read_text())
    types = config["available_node_types"]
    types["twin"] = {**types["tpu_v4_8"]}
    file.write_text(yaml.safe_dump(config))
    for name in ("twin=2", "tpu_v4_8"):
        assert main(["add-worker", name]) == 3
        assert "no resource is unique to this type; raise its min_workers" in capsys.readouterr().err
    assert ray.calls() == []


def test_a_working_directory_that_is_not_unpacked_in_time_is_given_up_and_its_job_stopped() -> None:
    stopped: list[str] = []

    class Api:
        async def submit(self, body: dict[str, object]) -> str:
            return str(body["submission_id"])

        async def info(self, job_id: str) -> JobInfo:
            return JobInfo("RUNNING")

        async def stop(self, job_id: str) -> bool:
            stopped.append(job_id)
            return True

    saved = SavedJob({"submission_id": "job-1", "entrypoint": "x"}, "_ray_pkg_1.zip")
    with pytest.raises(Conflict, match=r"the working directory of job-1 cannot be unpacked on the head: not in 0.01 s"):
        asyncio.run(unpack_on_head(Api(), [saved], seconds=0.01))  # type: ignore[arg-type]
    assert len(stopped) == 1
    assert stopped[0].startswith(JOB_PREFIX)


def test_jobs_that_cannot_be_saved_are_named(ray: FakeRay, server: JobsServer, tmp_path: Path, capsys: Output) -> None:
    for content in (None, "{", "[{}]", "[1]"):
        if content is not None:
            (tmp_path / "jobs.json").write_text(content)
        assert main(["restart", "--resubmit", str(tmp_path)]) == 3
        assert f"{tmp_path} has no saved jobs" in capsys.readouterr().err
    assert ray.calls() == []
    environment = {"py_modules": ["gcs://m.zip"]}
    server.jobs["lost"] = Job({"submission_id": "lost", "entrypoint": "x", "runtime_env": environment})
    assert main(["restart", "--yes"]) == 0
    said = capsys.readouterr().err
    assert "job lost will not be submitted again: its py_modules are only in the head's memory" in said
    assert "0 jobs are saved in" in said
