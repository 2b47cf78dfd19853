"""The Slurm backend without a Slurm: addresses, options of sbatch, refusals, and verdicts on lost jobs."""

import errno
import os
import shutil
import stat
from pathlib import Path

import pytest

from fray.backends.slurm import SlurmClient
from fray.backends.slurm.address import SlurmAddress, parse_address
from fray.backends.slurm.commands import SlurmState
from fray.backends.slurm.folder import End, SharedFolder, Spec
from fray.backends.slurm.request import gpu_type, options_of, write_script
from fray.backends.slurm.watch import judge
from fray.registry import BACKENDS
from fray.types import Entrypoint, EnvironmentConfig, JobRequest, JobStatus, ResourceConfig
from rigging.errors import InvalidRequest

TRUE = Entrypoint.from_binary("true")


def test_an_address_and_its_spec() -> None:
    address = parse_address("gpu,cpu?account=lab&time=1:00:00&exclusive=&dir=/shared/me")
    assert address == SlurmAddress(
        "gpu,cpu", (("account", "lab"), ("time", "1:00:00"), ("exclusive", "")), Path("/shared/me")
    )
    assert parse_address(address.spec.removeprefix("slurm://")) == address
    assert address.arguments() == ["--partition=gpu,cpu", "--account=lab", "--time=1:00:00", "--exclusive"]
    assert parse_address(None).arguments() == []


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("gpu&time=1", r"'gpu&time=1' is no name of a partition; write slurm://PARTITION\?OPTION=VALUE&OPTION=VALUE"),
        ("gpu?array=1-4", "'array' is not allowed; allowed are dir=FOLDER and options of sbatch"),
        ("gpu?outp=x", "'outp' is not allowed"),
        ("gpu?mem=1G", "'mem' is not allowed.*memory and GPUs are in a job's ResourceConfig"),
        ("gpu?version=", "'version' is not allowed"),
        ("gpu?account=&time=1:00", "'account' has no value; write account=VALUE, or leave it out"),
        ("gpu?dir=", "'dir' has no value"),
        ("gpu?Bad%20name=1", "'Bad name' is not allowed"),
        ("gpu?dir=/a%2525b", "dir=/a%25b must not contain '%'"),
    ],
)
def test_refused_addresses(address: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        parse_address(address)


def test_options_of_sbatch() -> None:
    needs = ResourceConfig.with_gpu("H100", count=8, cpu=2.5, ram="10g", replicas=4)
    request = JobRequest("train", TRUE, needs, max_retries_preemption=0)
    assert options_of(request, "train", SlurmAddress(), None, 3, "h100") == [
        "--job-name=train", "--ntasks=4", "--cpus-per-task=3", "--mem-per-cpu=3414M", "--signal=B:USR1@30",
        "--no-requeue", "--gpus-per-task=h100:8", "--array=0-2",
    ]  # fmt: skip
    assert "--gpus-per-task=8" in options_of(request, "train", SlurmAddress(), None)
    whole_nodes = SlurmAddress(options=(("exclusive", ""),))
    assert "--mem=0" in options_of(request, "train", whole_nodes, None)


@pytest.mark.parametrize(
    ("variant", "known", "found"),
    [
        ("H100", {"h100", "H100"}, "H100"),
        ("H100", {"h100", "nvidia_h100_80gb", "a100", ""}, "h100"),
        ("H100", {"nvidia_h100_80gb_hbm3", "nvidia_h200"}, "nvidia_h100_80gb_hbm3"),
        ("H100", {""}, ""),
        ("H100", {"a100", "A40"}, "job 'x' asks for H100 GPUs; this partition has: A40, a100"),
        ("A100", {"a100-40gb", "a100-80gb"}, "job 'x' asks for A100 GPUs; several types match: a100-40gb, a100-80gb"),
        ("A100", set(), "job 'x' asks for A100 GPUs; this partition has: none"),
    ],
)
def test_the_clusters_name_of_a_type_of_gpu(variant: str, known: set[str], found: str) -> None:
    if found.startswith("job"):
        with pytest.raises(InvalidRequest, match=f"^{found}$"):
            gpu_type(variant, known, "job 'x'")
    else:
        assert gpu_type(variant, known, "job 'x'") == found


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"resources": ResourceConfig.with_tpu("v5p-8")}, "asks for v5p-8.*use Iris for TPUs"),
        ({"resources": ResourceConfig.with_gpu("A100", device_alternatives=["H100"])}, r"\['H100'\].*leave it out"),
        ({"environment": EnvironmentConfig(docker_image="x")}, "asks for an image.*leave it out"),
    ],
)
def test_refused_requests(tmp_path: Path, fields: dict[str, object], problem: str) -> None:
    client = SlurmClient(SlurmAddress(directory=tmp_path / "shared"))
    with pytest.raises(InvalidRequest, match=f"job 'asks'.*{problem}"):
        client.submit(JobRequest("asks", TRUE, **fields))  # type: ignore[arg-type]
    assert not (tmp_path / "shared").exists()


def test_folders_that_take_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = JobRequest("lost", Entrypoint.from_callable(print))
    refusal = r"the folder for jobs on Slurm, {}: {}; make room there, or choose another dir=FOLDER"
    with pytest.raises(InvalidRequest, match=refusal.format("/dev/null", "File exists")):
        SlurmClient(SlurmAddress(directory=Path("/dev/null"))).submit(request)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("fray.backends.slurm.client.write_payload", fail)
    with pytest.raises(InvalidRequest, match=refusal.format(tmp_path, "No space left on device")):
        SlurmClient(SlurmAddress(directory=tmp_path)).submit(request)
    assert not list((tmp_path / "groups").iterdir())


def test_a_machine_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidRequest, match=r"sbatch is not on PATH.*login node"):
        SlurmClient(SlurmAddress(directory=tmp_path / "shared")).submit(JobRequest("lost", TRUE))
    (backend,) = (each for each in BACKENDS if each.name == "slurm")
    assert backend.missing() == "sbatch is not on PATH"


@pytest.mark.parametrize(
    ("state", "status", "words"),
    [
        (
            SlurmState(""),
            "failed",
            "lost: Slurm no longer knows job 7, and the job stored no result",
        ),
        (SlurmState("NODE_FAIL"), "failed", "lost: Slurm ended job 7: JobState=X; its log ends:\nwords"),
        (SlurmState("PREEMPTED"), "failed", "lost: Slurm ended job 7"),
        (SlurmState("CANCELLED"), "stopped", "Slurm cancelled job 7: JobState=X"),
    ],
)
def test_the_end_of_a_job_that_stored_none(state: SlurmState, status: str, words: str) -> None:
    end = judge("7", state, "JobState=X", "words")
    assert (end.status, end.preempted) == (status, state.state == "PREEMPTED")
    assert end.reason.startswith(words)


def test_the_first_end_counts(tmp_path: Path) -> None:
    group = SharedFolder(tmp_path).new_group(Spec(["a"], "slurm", 1, 0, 0, ["true"], "/"))
    first, second = End(JobStatus.SUCCEEDED, attempt=1), End(JobStatus.FAILED, "late")
    assert [group.set_end(0, first), group.set_end(0, second), group.end(0)] == [first, first, first]
    assert group.ended() == {0}


def test_old_groups_and_their_names_are_removed(tmp_path: Path) -> None:
    folder = SharedFolder(tmp_path)
    names = ("ended", "running", "never submitted", "never written", "new")
    groups = [folder.new_group(Spec([name], "slurm", 1, 0, 0, ["true"], "/")) for name in names]
    ended, running, unsubmitted, unwritten, _ = groups
    for group in groups:
        with folder.locked_name(group.spec().names[0]) as file:
            file.write(group, 0)
    ended.set_end(0, End(JobStatus.SUCCEEDED))
    for group in (ended, running):
        write_script(tmp_path, "python", group)
    for group in (ended, running, unsubmitted):
        os.utime(group.path / "ends", (0, 0))
    shutil.rmtree(unwritten.path / "ends")
    (unwritten.path / "spec").unlink()
    os.utime(unwritten.path, (0, 0))
    folder.prune()
    assert [group.path.exists() for group in groups] == [False, True, False, False, True]
    assert len(list((tmp_path / "names").iterdir())) == 2
    assert stat.S_IMODE(running.path.stat().st_mode) == 0o700
