"""Slurm's commands, by scripts that stand for them."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import fray
from fray.backends.slurm import SlurmClient, commands
from fray.backends.slurm.address import SlurmAddress
from fray.backends.slurm.commands import NotAnswered, Refused, SlurmState
from fray.backends.slurm.folder import End, Group
from fray.backends.slurm.job import SlurmJob
from fray.cli.main import run_command_line
from fray.errors import JobFailed
from fray.testing.waiting import eventually
from fray.types import Entrypoint, JobRequest, JobStatus, ResourceConfig
from rigging.errors import InvalidRequest, Unavailable

Tools = Callable[..., Path]
ARRAYS = "echo 'MaxArraySize            = {}'"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """Put scripts on PATH, by the names of commands. Return their folder, which is their `$0`'s too."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def make(**scripts: str) -> Path:
        for name, text in scripts.items():
            (folder / f"{name}.new").write_text(f'#!/bin/sh\nhere=$(dirname "$0")\n{text}\n')
            (folder / f"{name}.new").chmod(0o755)
            (folder / f"{name}.new").rename(folder / name)
        return folder

    return make


def test_variables_of_slurm_change_no_job(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tools(sbatch='env >> "$here/env"; echo 7')
    ignored = {
        "SBATCH_ARRAY_INX": "1-9", "SBATCH_EXPORT": "NONE", "SBATCH_WAIT": "1", "SLURM_JOB_ID": "3",
        "SLURM_CLUSTERS": "other", "SQUEUE_FORMAT": "%i", "SCANCEL_STATE": "PENDING", "SRUN_EXPORT_ENV": "NONE",
    }  # fmt: skip
    kept = {"SBATCH_ACCOUNT": "lab", "SBATCH_PARTITION": "gpu", "SLURM_CONF": "/etc/x"}
    for name, value in {**ignored, **kept}.items():
        monkeypatch.setenv(name, value)
    with caplog.at_level(logging.WARNING):
        assert [commands.submit([], "job.sh"), commands.submit([], "job.sh")] == ["7", "7"]
    found = dict(line.partition("=")[::2] for line in (folder / "env").read_text().splitlines())
    assert kept.items() <= found.items()
    assert not ignored.keys() & found.keys()
    assert caplog.messages == [
        "jobs ignore SBATCH_ARRAY_INX, SBATCH_EXPORT, SBATCH_WAIT, SLURM_CLUSTERS; write options into "
        "FRAY_CLIENT=slurm://PARTITION?OPTION=VALUE"
    ]


def test_many_jobs_are_cancelled_and_asked_about_together(tools: Tools) -> None:
    folder = tools(scancel='echo "$@" >> "$here/said"', squeue='echo "$@" >> "$here/said"')
    commands.cancel(["12_0", "12_3", "14", "13_7"])
    commands.cancel([])
    commands.states({"12_0": "fray:a", "12_3": "fray:a", "14": "fray:b"})
    commands.states({str(number): "fray:c" for number in range(5000)})
    said = [line.split() for line in (folder / "said").read_text().splitlines()]
    assert said[0] == ["--quiet", "12_[0,3]", "14", "13_[7]"]
    assert [line[-1] for line in said[1:]] == ["--jobs=12,14", "--me"]


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 'scancel: error: Kill job error on job id 7: Invalid job id specified' >&2; exit 1", None),
        (
            "echo 'scancel: error: Kill job error on job id 7: Invalid job id specified' >&2\n"
            "echo 'scancel: error: Kill job error on job id 8: Access/permission denied' >&2; exit 1",
            r"not cancelled: .*job id 8: Access/permission denied; try again, or use scancel 7 8",
        ),
    ],
)
def test_a_cancel_that_fails(tools: Tools, script: str, problem: str | None) -> None:
    tools(scancel=script)
    if problem is None:
        commands.cancel(["7", "8"])
    else:
        with pytest.raises(Unavailable, match=problem) as caught:
            commands.cancel(["7", "8"])
        assert "Invalid job id" not in str(caught.value)


def test_types_of_gpus(tools: Tools, tmp_path: Path) -> None:
    lines = ["(null)", "gpu:A100:2(S:0-1),gpu:h100:4", "mygpu:x:1", "gpu:8", "nvme:1,gpu:a100_1g.5gb:7(S:0)"]
    folder = tools(sinfo='echo "$@" >> "$here/asked"; cat "$here/lines"')
    (folder / "lines").write_text("\n".join(lines))
    assert commands.gpu_types("gpu") == {"A100", "h100", "", "a100_1g.5gb"}
    tools(sbatch='echo "$@" > "$here/options"; echo 7')
    request = JobRequest("train", Entrypoint.from_binary("true"), ResourceConfig.with_gpu("a100", count=2))
    with SlurmClient(SlurmAddress("gpu", directory=tmp_path / "shared")) as client:
        client.submit(request)
        client.expected_start(request)
    assert "--gpus-per-task=A100:2" in (folder / "options").read_text().split()
    assert (folder / "asked").read_text() == "--noheader --format=%G --partition=gpu\n" * 2


def test_what_a_site_adds_to_the_answer_of_squeue(tools: Tools) -> None:
    tools(squeue="echo Maintenance on Monday; echo '7|N/A|RUNNING|None|fray:a'")
    assert commands.states({"7": "fray:a"}) == {"7": SlurmState("RUNNING", "None")}


def test_an_sbatch_that_prints_no_id(tools: Tools) -> None:
    tools(sbatch="echo Welcome to the cluster")
    with pytest.raises(NotAnswered, match="sbatch: Welcome to the cluster"):
        commands.submit([], "job.sh")


def test_when_without_an_answer(tools: Tools) -> None:
    tools(sbatch=AWAY)
    with pytest.raises(NotAnswered, match="Unable to contact slurm controller"):
        commands.expected_start([], "job.sh")
    tools(sbatch="echo 'sbatch: error: invalid partition specified: gpuu' >&2; exit 1")
    with pytest.raises(Refused, match="invalid partition specified: gpuu"):
        commands.expected_start([], "job.sh")


AWAY = "echo 'sbatch: error: Unable to contact slurm controller (connect failure)' >&2; exit 1"


def test_a_submission_waits_for_a_restarting_slurmctld(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(commands, "_OUTAGE_PAUSE_SECONDS", 0.01)
    tools(sbatch=f'mkdir "$here/1" 2>/dev/null || mkdir "$here/2" 2>/dev/null || exec echo 7; {AWAY}')
    assert commands.submit([], "job.sh") == "7"
    assert caplog.messages == ["sbatch: trying again for 300 s: Unable to contact slurm controller (connect failure)"]
    monkeypatch.setattr(commands, "_OUTAGE_SECONDS", 0.1)
    tools(sbatch=AWAY)
    with pytest.raises(NotAnswered, match="connect failure"):
        commands.submit([], "job.sh")


def test_a_command_that_hangs(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_SECONDS", 0.1)
    tools(squeue="exec sleep 60")
    with pytest.raises(Unavailable, match=r"squeue did not answer within 0\.1 s"):
        commands.states({"7": "fray:a"})


def group_in(folder: Path) -> Group:
    (path,) = (folder / "shared" / "groups").iterdir()
    return Group(path)


def test_a_watcher_outlives_what_it_cannot_read(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fray.backends.slurm.watch._ASK_SECONDS", 0.01)
    tools(sbatch="echo 7", squeue='echo x >> "$here/asked"; exit 1')
    with SlurmClient(SlurmAddress(directory=tmp_path / "shared")) as client:
        job = client.submit(JobRequest("asks", Entrypoint.from_binary("true")))
        end = group_in(tmp_path).path / "ends" / "0"
        end.write_text("half of a")
        eventually(lambda: "cannot look at jobs on Slurm" in caplog.text, "the watcher met the file")
        end.unlink()
        group_in(tmp_path).set_end(0, End(JobStatus.SUCCEEDED))
        assert job.wait(60) is JobStatus.SUCCEEDED


def test_a_result_does_not_wait_for_a_slow_squeue(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fray.backends.slurm.watch._ASK_SECONDS", 0.01)
    folder = tools(sbatch="echo 7", squeue='touch "$here/asked"; while [ ! -e "$here/go" ]; do sleep 0.1; done')
    with SlurmClient(SlurmAddress(directory=tmp_path / "shared")) as client:
        job = client.submit(JobRequest("quick", Entrypoint.from_binary("true")))
        eventually((folder / "asked").exists, "squeue is asked")
        group_in(tmp_path).set_end(0, End(JobStatus.SUCCEEDED))
        assert job.wait(60) is JobStatus.SUCCEEDED
        (folder / "go").touch()


def test_the_reasons_of_pending_jobs_cost_no_questions(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fray.backends.slurm.watch._ASK_SECONDS", 0.01)
    tools(sbatch="echo 7", squeue='echo "7|N/A|PENDING|Priority|fray:$(ls "$here/../shared/groups")"')
    with SlurmClient(SlurmAddress(directory=tmp_path / "shared")) as client:
        job = client.submit(JobRequest("waits", Entrypoint.from_binary("true")))
        assert isinstance(job, SlurmJob)
        eventually(job.pending_reason, "the watcher has asked")
        monkeypatch.setenv("PATH", "")
        assert job.pending_reason() == "Priority"
        job.group.mark("begun", 0)
        assert job.pending_reason() == ""


def test_fray_run_tells_why_a_job_is_pending(tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        (tmp_path / "told").touch()

    monkeypatch.setattr("fray.backends.slurm.watch._ASK_SECONDS", 0.01)
    monkeypatch.setattr("fray.cli.main._PENDING_SECONDS", 0.01)
    monkeypatch.setattr("fray.cli.main._say", say)
    state = '$([ -e "$here/../told" ] && echo "CANCELLED|None" || echo "PENDING|PartitionDown")'
    tools(sbatch="echo 7", scontrol="exit 0", squeue=f'echo "7|N/A|{state}|fray:$(ls "$here/../shared/groups")"')
    words = ["run", "--backend", f"slurm://main?dir={tmp_path}/shared", "--name", "waits", "--", "true"]
    assert run_command_line(words) == 1
    assert said[0] == "job slurm-7-waits is pending: PartitionDown"


def test_a_node_that_does_not_see_the_folder(tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fray.backends.slurm.watch._ASK_SECONDS", 0.01)
    state = 'echo "7|N/A|FAILED|JobLaunchFailure|fray:$(ls "$here/../shared/groups")"'
    tools(sbatch="echo 7", squeue=state, scontrol="echo JobState=FAILED Reason=JobLaunchFailure ExitCode=0:53")
    with SlurmClient(SlurmAddress(directory=tmp_path / "shared")) as client:
        job = client.submit(JobRequest("unseen", Entrypoint.from_binary("true")))
        with pytest.raises(
            JobFailed, match=rf"ExitCode=0:53; its log ends:\n.*does not see {tmp_path}.*all nodes share"
        ):
            job.wait(60)


def test_a_stopped_map_is_one_scancel(tools: Tools, tmp_path: Path) -> None:
    fails = """(cd "$here"/../shared/groups/*/ends && echo '{"status": "failed"}' > 0); echo 7"""
    folder = tools(sbatch=fails, scontrol=ARRAYS.format(1001), scancel='echo "$@" >> "$here/said"')
    with SlurmClient(SlurmAddress(directory=tmp_path / "shared")) as client:
        with pytest.raises(JobFailed):
            next(fray.map(print, range(3), client=client))
        group = group_in(tmp_path)
        assert [group.is_marked("stop", index) for index in range(3)] == [False, True, True]
    assert (folder / "said").read_text() == "--quiet 7_[1,2]\n"


def calls(count: int) -> list[JobRequest]:
    return [JobRequest(f"job-{index}", Entrypoint.from_callable(print)) for index in range(count)]


@pytest.mark.parametrize(
    ("limit", "ids"),
    [(1001, ["7_0", "7_1", "7_2"]), (2, ["7_0", "7_1", "7"]), (0, ["7", "7", "7"])],
)
def test_arrays_fit_the_limit_of_the_cluster(tools: Tools, tmp_path: Path, limit: int, ids: list[str]) -> None:
    tools(sbatch="echo 7", scontrol=ARRAYS.format(limit))
    with SlurmClient(SlurmAddress(directory=tmp_path / "shared")) as client:
        handles = client.submit_all(calls(3))
        assert [job.job_id for job in handles] == [f"slurm-{each}-job-{index}" for index, each in enumerate(ids)]


def test_a_refused_array_leaves_the_handles_of_those_before(tools: Tools, tmp_path: Path) -> None:
    tools(sbatch='mkdir "$here/first" || exit 1; echo 7', scontrol=ARRAYS.format(2))
    with SlurmClient(SlurmAddress(directory=tmp_path / "shared")) as client:
        handles = client.submit_all(calls(4))
        assert [next(handles).job_id, next(handles).job_id] == ["slurm-7_0-job-0", "slurm-7_1-job-1"]
        with pytest.raises(InvalidRequest, match="job 'job-2': Slurm refuses it"):
            next(handles)


@pytest.mark.parametrize("count", [1, 2])
def test_a_submission_that_is_interrupted(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Nobody has the handles of its jobs: they are stopped if Slurm has them, and end at once if it gets them later."""
    listed = 'echo "7|0|PENDING|None|fray:$(ls "$here/../shared/groups")"'
    folder = tools(scontrol=ARRAYS.format(9), squeue=listed, scancel='echo "$@" >> "$here/said"')

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "submit", interrupt)
    with SlurmClient(SlurmAddress(directory=tmp_path / "shared")) as client, pytest.raises(KeyboardInterrupt):
        next(client.submit_all(calls(count)))
    assert (folder / "said").read_text() == "--quiet 7\n"
    assert [group_in(tmp_path).is_marked("stop", index) for index in range(count)] == [True] * count
