"""The Slurm backend on a real Slurm: when a part of it fails, each job ends once, or is reported as lost."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

import fray
from fray.backends.slurm import SlurmClient
from fray.backends.slurm.address import SlurmAddress
from fray.backends.slurm.job import SlurmJob
from fray.cli.main import cli
from fray.context import set_current_client
from fray.errors import JobFailed
from fray.testing.signals import Flag, Tally, eventually
from fray.types import Entrypoint, EnvironmentConfig, JobRequest, JobStatus, ResourceConfig
from rigging.errors import InvalidRequest, Unavailable
from support.slurm.cluster import CPUS, SlurmCluster, running_slurm

pytestmark = pytest.mark.soak
LONG = 60.0
SMALL = ResourceConfig.with_cpu(cpu=1, ram="64m")
WHOLE = ResourceConfig.with_cpu(cpu=CPUS, ram="64m")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with running_slurm() as cluster:
        yield cluster


@pytest.fixture
def client(cluster: SlurmCluster, tmp_path: Path) -> Iterator[SlurmClient]:
    client = client_in(tmp_path)
    yield client
    client.shutdown()
    cluster.run("scancel", "--me")
    eventually(lambda: not cluster.run("squeue", "-h"), "no job is left", LONG)


def client_in(folder: Path, partition: str = "main", **options: str) -> SlurmClient:
    return SlurmClient(SlurmAddress(partition, tuple(options.items()), folder / "shared"))


def request(name: str, fn: Callable[..., object], *args: object, **fields: object) -> JobRequest:
    environment = EnvironmentConfig(workspace=str(Path(__file__).parent))
    made = {"resources": SMALL, "environment": environment, **fields}
    return JobRequest(name, Entrypoint.from_callable(fn, args), **made)  # type: ignore[arg-type]


def count_and_wait(begun: Flag, go: Flag, starts: Tally) -> int:
    """Count a start, and return the count when it may go on."""
    count = starts.add()
    begun.set(str(os.getpid()))
    go.wait(LONG)
    return count


class Waiting:
    """A job that waits for a flag, and counts its starts."""

    def __init__(self, client: SlurmClient, folder: Path, **fields: object) -> None:
        self.begun, self.go, self.starts = Flag(f"{folder}/begun"), Flag(f"{folder}/go"), Tally(f"{folder}/starts")
        self.request = request("waits", count_and_wait, self.begun, self.go, self.starts, **fields)
        job = client.submit(self.request)
        assert isinstance(job, SlurmJob)
        self.job = job
        self.begun.wait()


DRIVER = """
import sys
from pathlib import Path
from test_real_slurm import Waiting, client_in, signal, os
Waiting(client_in(Path(sys.argv[1])), Path(sys.argv[1]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_each_replica_of_a_gang_has_its_own_gpus(client: SlurmClient) -> None:
    """Before slurmctld is killed: this release of it then refuses steps with GPUs, whatever their options."""
    needs = ResourceConfig.with_gpu("H100", count=1, cpu=1, ram="64m", replicas=2)
    job = client.submit(request("gpus", os.getenv, "CUDA_VISIBLE_DEVICES", resources=needs))
    assert job.result(LONG) == ["2", "3"]
    with pytest.raises(InvalidRequest, match="asks for V100 GPUs; this partition has: A100, nvidia_h100_80gb"):
        client.submit(request("none", os.getpid, resources=ResourceConfig.with_gpu("V100")))


def test_a_killed_driver(client: SlurmClient, cluster: SlurmCluster, tmp_path: Path) -> None:
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    assert subprocess.run(command, env=env, timeout=LONG, check=False).returncode == -signal.SIGKILL
    begun, go, starts = Flag(f"{tmp_path}/begun"), Flag(f"{tmp_path}/go"), Tally(f"{tmp_path}/starts")
    found = client.submit(request("waits", count_and_wait, begun, go, starts))
    go.set()
    assert found.result(LONG) == 1
    assert starts.count() == 1
    ended = client.ended_job("waits")
    assert ended is not None
    assert ended.result(LONG) == 1


SUBMITS_WITHOUT_ANSWER = """#!/bin/sh
{sbatch} "$@" >/dev/null
touch {marker}
echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
exit 1
"""
FAILS_ONCE = """#!/bin/sh
if [ -e {marker} ] && mkdir {marker}.asked 2>/dev/null; then echo "squeue: error: timed out" >&2; exit 1; fi
exec {squeue} "$@"
"""


@pytest.mark.parametrize("squeue_answers", [True, False])
def test_a_submission_without_an_answer_is_looked_up_before_another(
    client: SlurmClient, cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squeue_answers: bool
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    scripts = {"sbatch": SUBMITS_WITHOUT_ANSWER, **({} if squeue_answers else {"squeue": FAILS_ONCE})}
    for name, text in scripts.items():
        path = folder / name
        path.write_text(text.format(**{name: cluster.commands / name, "marker": tmp_path / "submitted"}))
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    starts = Tally(f"{tmp_path}/starts")
    asked = request("once", starts.add)
    if not squeue_answers:
        with pytest.raises(Unavailable, match=r"Socket timed out.*Submit it again under this name"):
            client.submit(asked)
    assert client.submit(asked).result(LONG) == 1
    assert starts.count() == 1


@pytest.mark.parametrize("daemon", ["slurmd", "slurmctld"])
def test_a_killed_daemon(client: SlurmClient, cluster: SlurmCluster, tmp_path: Path, daemon: str) -> None:
    waiting = Waiting(client, tmp_path)
    cluster.save()
    cluster.kill(daemon)
    waiting.go.set()
    assert waiting.job.result(LONG) == 1
    with ThreadPoolExecutor() as pool:
        submitted = pool.submit(client.submit, request("next", os.getpid))
        cluster.start_again(daemon)
        assert submitted.result(LONG).wait(LONG) is JobStatus.SUCCEEDED
    assert waiting.starts.count() == 1


def test_a_cancelled_job(client: SlurmClient, cluster: SlurmCluster, tmp_path: Path) -> None:
    waiting = Waiting(client, tmp_path, max_retries_failure=3)
    cluster.run("scancel", waiting.job.task)
    with pytest.raises(JobFailed, match=rf"was stopped: Slurm cancelled job {waiting.job.task}: JobState=CANCELLED"):
        waiting.job.wait(LONG)
    assert waiting.starts.count() == 1


def warned(folder: str, starts: Tally) -> int:
    """Save on the warning of the time limit, and return the count of starts when that was done."""
    told = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: told.set())
    count = starts.add()
    if Path(folder, "saved").exists():
        return count
    told.wait(LONG)
    Path(folder, "saved").touch()
    sys.exit(1)


@pytest.mark.timeout(4 * LONG)
def test_the_time_limit(client: SlurmClient, tmp_path: Path) -> None:
    starts, endless = Tally(f"{tmp_path}/starts"), Flag(f"{tmp_path}/never")
    hasty = client_in(tmp_path, time="1")
    saves = hasty.submit(request("saves", warned, str(tmp_path), starts, replicas=2))
    lost = hasty.submit(request("endless", endless.wait, 5 * LONG, max_retries_preemption=0))
    assert sorted(saves.result(LONG)) == [3, 4]
    with pytest.raises(JobFailed, match=r"lost: Slurm ended job \d+: JobState=TIMEOUT") as caught:
        lost.wait(2 * LONG)
    assert not caught.value.was_preempted
    hasty.shutdown()


def test_preemption_by_a_partition(client: SlurmClient, tmp_path: Path) -> None:
    waiting = Waiting(client, tmp_path, resources=WHOLE)
    urgent = client_in(tmp_path, "urgent")
    preempting = urgent.submit(request("urgent", os.getpid, resources=WHOLE))
    eventually(lambda: waiting.job.status() is JobStatus.PENDING, "the job is preempted", LONG)
    assert preempting.wait(LONG) is JobStatus.SUCCEEDED
    waiting.go.set()
    assert waiting.job.result(LONG) == 2
    urgent.shutdown()


@pytest.mark.parametrize("retries", [1, 0])
def test_a_lost_node(client: SlurmClient, cluster: SlurmCluster, tmp_path: Path, retries: int) -> None:
    waiting = Waiting(client, tmp_path, max_retries_preemption=retries)
    cluster.run("scontrol", "update", "NodeName=node1", "State=DOWN", "Reason=test")
    cluster.run("scontrol", "update", "NodeName=node1", "State=RESUME")
    if retries:
        waiting.go.set()
        assert waiting.job.result(LONG) in (1, 2)
        assert waiting.starts.count() <= 2
    else:
        with pytest.raises(JobFailed, match=r"lost: Slurm ended job \d+: JobState=NODE_FAIL"):
            waiting.job.wait(LONG)


def test_a_full_spool(client: SlurmClient, cluster: SlurmCluster) -> None:
    cluster.run("dd", "if=/dev/zero", "of=/var/spool/slurmd/filler", "bs=64k")
    try:
        job = client.submit(request("first", os.getpid, max_retries_failure=3))
        with pytest.raises(JobFailed, match="lost: Slurm ended job"):
            job.wait(LONG)
    finally:
        cluster.run("rm", "/var/spool/slurmd/filler")
        cluster.run("scontrol", "update", "NodeName=node1", "State=RESUME")
    eventually(cluster.is_up, "the node takes jobs again", 60, cluster.logs)
    assert client.submit(request("first", os.getpid)).wait(LONG) is JobStatus.SUCCEEDED


def double(number: int) -> int:
    return 2 * number


def test_a_map_is_one_array(client: SlurmClient, cluster: SlurmCluster) -> None:
    with set_current_client(client):
        found = fray.map(double, range(40), resources=SMALL, environment=request("x", double).environment)
        assert list(found) == [2 * number for number in range(40)]
    arrays = cluster.run("squeue", "--noheader", "--states=all", "--array", "--format=%F %j").splitlines()
    names = [line.split() for line in arrays if " double-" in line]
    assert len(names) == 40
    assert len({number for number, _ in names}) == 1


def gang() -> tuple[str, ...]:
    return tuple(os.environ[name] for name in ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NODELIST"))


def test_a_gang_has_the_variables_of_srun(client: SlurmClient) -> None:
    assert client.submit(request("gang", gang, replicas=2)).result(LONG) == [("0", "2", "node1"), ("1", "2", "node1")]


def test_when(client: SlurmClient, cluster: SlurmCluster) -> None:
    runner = CliRunner()
    command = ["run", "--backend", client.spec, "--name", "asks", "--when", "--", "true"]
    done = runner.invoke(cli, command)
    assert re.search(r"Job \d+ to start at \S+ using 1 processors on nodes node1", done.output)
    assert "asks" not in cluster.run("squeue", "--noheader", "--states=all", "--format=%j")


@pytest.mark.parametrize(
    ("experiment", "output"),
    [
        ("experiments.tutorials.hello_world_remote", '"sum": 4950'),
        ("experiments.tutorials.fan_out", "jobs are not counted: SlurmClient has no actors"),
        ("experiments.tutorials.sweep", "best of 9"),
    ],
)
def test_experiments_run_unchanged(client: SlurmClient, tmp_path: Path, experiment: str, output: str) -> None:
    env = {
        **os.environ, "FRAY_CLIENT": client.spec, "MARIN_PREFIX": f"{tmp_path}/prefix", "FAN_OUT_SHARDS": "8",
    }  # fmt: skip
    root = Path(__file__).parents[5]
    command = [sys.executable, "-m", experiment]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=LONG, check=False)
    assert output in done.stdout, done.stderr
    if "fan_out" in experiment:
        assert '"sum": 148' in done.stdout
        (log,) = Path(tmp_path, "prefix/fan_out").glob("shard-0-*/.log")
        assert "end of attempt 1" in log.read_text()
