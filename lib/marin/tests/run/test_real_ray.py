"""`ray_run` and the documents' commands against a real Ray cluster with its Jobs API."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from marin.run.cluster.jobs.backup import select_jobs
from support.iris.packages import make_wheel

pytestmark = [pytest.mark.soak, pytest.mark.ray, pytest.mark.process, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[4]
SUBMIT = [sys.executable, "marin/run/ray_run.py"]


FAR = """
from fray import Entrypoint, JobRequest, ResourceConfig, create_environment, current_client

def look():
    import one, plain, tool
    print(f"{one.NAME}, {plain.NAME}, {tool.NAME}")

small = ResourceConfig.with_cpu(cpu=0.1, ram="64m", disk="1m")
job = current_client().submit(JobRequest("look", Entrypoint.from_callable(look), small, create_environment()))
job.wait()
print("in a job:", job.logs())
"""


@pytest.fixture
def work(tmp_path: Path, jobs_address: str) -> Path:
    for name, text in {
        "pyproject.toml": "[project]\nname = 'study'\nversion = '0'\n[tool.uv.workspace]\nmembers = ['lib/*']\n",
        "submodules/tool/src/tool.py": "NAME = 'tool of a submodule'\n",
        "submodules/plain.d/plain.py": "NAME = 'plain'\n",
        "count.py": "import time\nfor i in range(20): print('line', i, flush=True); time.sleep(0.05)\n",
        "wait.py": "import time\nprint('waiting', flush=True)\ntime.sleep(600)\n",
        "paths.py": "import os, ray, plain, tool\n@ray.remote\ndef far():\n    import tool\n    return tool.NAME\n"
        "ray.init()\nprint(plain.NAME, ray.get(far.remote()), os.environ['MINE'], sorted(os.listdir('.')))\n",
        "far.py": FAR,
        "lib/one/pyproject.toml": "[project]\nname = 'one'\nversion = '0'\n",
        "lib/one/src/one.py": "NAME = 'a project of the workspace'\n",
        "secret.log": "",
        ".gitignore": "*.log\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def env_of(address: str, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MARIN_", "RAY_ADDRESS"))}
    return {**kept, "RAY_ADDRESS": address, **more}


def ray_run(
    address: str, cwd: Path, words: Sequence[str], *, before: Sequence[str] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-m", "marin.run.ray_run", *words]
    return subprocess.run(command, cwd=cwd, env=env_of(address, **env), capture_output=True, text=True, timeout=300)


def test_the_documents_command(jobs_address: str, tmp_path: Path) -> None:
    """Word for word, in an environment without pip, and on a head whose PATH has another Python first."""
    env = env_of(jobs_address, MARIN_PREFIX=str(tmp_path))
    words = ["--", "python", "experiments/hello_world.py"]
    done = subprocess.run([*SUBMIT, *words], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr + done.stdout
    assert '{"sum": 4950, "min": 0, "max": 99}' in done.stdout
    assert list(tmp_path.glob("hello_world/stats-*/stats.json"))
    assert "packages that it has are not sent (--project-deps sends them)" in done.stderr


ELSEWHERE = ["unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh"]


def test_packages_come_where_the_nodes_python_has_no_pip(jobs_address: str, work: Path) -> None:
    wheel = work / "tiny-1.0-py3-none-any.whl"
    make_wheel(wheel, "tiny", "1.0", {"tiny.py": "NAME = 'it came'\n"})
    words = ["--pip_deps", f"tiny @ file://{wheel}", "--", "python", "-c", "import tiny; print(tiny.NAME)"]
    done = ray_run(jobs_address, work, words, before=ELSEWHERE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("it came\n")
    listed = ray_cli(jobs_address, work, f"{sys.executable} -m marin.run.cluster jobs --all")
    assert "marin-look" not in listed, "what has asked for it is not left in the list"


def test_what_is_told_before_the_job_begins(jobs_address: str, work: Path) -> None:
    other = work / "noted.log" / "ray-2.49.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: ray\nVersion: 2.49.0\n")
    (work / "dangling").symlink_to("nowhere")
    env = {"MARIN_PREFIX": "/scratch/mine", "PYTHONPATH": str(other.parent)}
    done = ray_run(jobs_address, work, ["--", "true"], before=ELSEWHERE, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning: the cluster has no MARIN_PREFIX" in done.stderr
    assert f"the cluster has Ray {version('ray')}, and this environment 2.49.0" in done.stderr
    assert "symlink dangling points to nothing" in done.stderr


def test_files_variables_and_import_paths_reach_the_job_and_its_tasks(jobs_address: str, work: Path) -> None:
    done = ray_run(jobs_address, work, ["-e", "MINE=m", "--", "python", "paths.py"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "plain tool of a submodule m ['.gitignore', 'count.py'" in done.stdout
    assert "secret.log" not in done.stdout
    (line,) = [text for text in done.stderr.splitlines() if "ray job submit" in text]
    again = ray_cli(jobs_address, work, line.partition("Ray command: ")[2])
    assert "plain tool of a submodule m" in again, "Ray's own command does the same"


# Ray's own process for a job, as when its node goes or has no memory left; it takes the job with it.
LOSE = "import os, signal; print('bye', flush=True); os.kill(os.getppid(), signal.SIGKILL); signal.pause()"


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["python", "-c", "print('bye'); raise SystemExit(7)"], 7, "exit code 7"),
        (["bash", "-c", "echo bye; kill -9 $$"], 137, "SIGKILL"),
        (["bash", "-c", "sleep 60 & kill -9 $!; wait $!; exit $?"], 137, "exit code 137 (128 + SIGKILL)"),
        (["no-such-program"], 127, "exit code 127"),
        (["exec", "python", "-c", LOSE], 1, "it was lost with its node or with the cluster's head"),
    ],
)
def test_a_job_that_fails_or_is_lost(jobs_address: str, work: Path, command: list[str], code: int, said: str) -> None:
    done = ray_run(jobs_address, work, ["--", *command])
    assert done.returncode == code, done.stdout + done.stderr
    assert "failed: " in done.stderr
    assert said in done.stderr


def test_import_paths_reach_the_jobs_of_the_job(jobs_address: str, work: Path) -> None:
    done = ray_run(jobs_address, work, ["--", "python", "far.py"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "in a job: a project of the workspace, plain, tool of a submodule" in done.stdout


@contextlib.contextmanager
def followed(address: str, work: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A job that waits for ever, being followed, and its id."""
    command = [sys.executable, "-m", "marin.run.ray_run", "--", "python", "wait.py"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=work, env=env_of(address), **pipes) as process:
        job_id = next(found[1] for line in process.stderr if (found := re.search(r"job (\w+) submitted", line)))
        assert any("waiting" in line for line in process.stdout)
        try:
            yield process, job_id
        finally:
            process.kill()


@pytest.mark.parametrize(("by_others", "code"), [(False, 130), (True, 1)])
def test_a_job_that_is_stopped(jobs_address: str, work: Path, by_others: bool, code: int) -> None:
    with followed(jobs_address, work) as (process, job_id):
        if by_others:
            ray_cli(jobs_address, work, f"ray job stop --address {jobs_address} {job_id}")
        else:
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert f"job {job_id} was stopped" in err
    assert status_of(jobs_address, job_id) == "STOPPED"


def test_the_documents_job_commands(jobs_address: str, work: Path) -> None:
    """Submitted, asked about, read and stopped by the lines of the documents, with this cluster's address."""
    submit = f"ray job submit --address {jobs_address} --working-dir . --no-wait -- python wait.py"
    job_id = re.search(r"raysubmit_\w+", ray_cli(jobs_address, work, submit))
    deadline = time.monotonic() + 60
    while "waiting" not in ray_cli(jobs_address, work, f"ray job logs --address {jobs_address} {job_id[0]}"):
        assert time.monotonic() < deadline
    assert "RUNNING" in ray_cli(jobs_address, work, f"ray job status --address {jobs_address} {job_id[0]}")
    ray_cli(jobs_address, work, f"ray job stop --address {jobs_address} {job_id[0]}")
    assert status_of(jobs_address, job_id[0]) == "STOPPED"


def ray_cli(address: str, cwd: Path, line: str, env: Mapping[str, str] | None = None) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        line, shell=True, cwd=cwd, env=env_of(address, PATH=path, **(env or {})), capture_output=True, text=True,
        timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def status_of(address: str, job_id: str) -> str:
    with urllib.request.urlopen(f"{address}/api/jobs/{job_id}") as response:
        found: dict[str, str] = json.load(response)
    return found["status"]


def test_a_job_is_listed_as_it_has_to_be_submitted_again(jobs_address: str, work: Path) -> None:
    """What `cluster restart` relies on: variables as they are, and the working directory unpacked under its name."""
    (work / "where.py").write_text("import os, time\nprint('in', os.getcwd(), flush=True)\ntime.sleep(600)\n")
    words = ["--no_wait", "-e", "MY_TOKEN=hidden", "--entrypoint-num-cpus", "1", "--", "python", "where.py"]
    job_id = ray_run(jobs_address, work, words).stdout.strip()
    cluster = [sys.executable, "-m", "marin.run.cluster"]
    deadline = time.monotonic() + 60
    while not (found := re.search(r"in (\S+)", ray_cli(jobs_address, work, f"ray job logs {job_id}"))):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    with urllib.request.urlopen(f"{jobs_address}/api/jobs/", timeout=60) as answer:
        saved, _ = select_jobs(json.load(answer))
    (job,) = [each for each in saved if each.job_id == job_id]
    assert found[1].endswith(f"/runtime_resources/working_dir_files/{job.package.removesuffix('.zip')}")
    assert job.body["runtime_env"]["env_vars"]["MY_TOKEN"] == "hidden"
    assert job.body["entrypoint_num_cpus"] == 1
    listed = subprocess.run([*cluster, "jobs"], env=env_of(jobs_address), capture_output=True, text=True, timeout=60)
    assert f"{job_id}  python where.py" in listed.stdout
    stop = [*cluster, "stop-job", job_id, "--yes", "--cluster", jobs_address]
    assert subprocess.run(stop, env=env_of(jobs_address), timeout=60).returncode == 0
    again = {**job.body, "submission_id": f"{job_id}-again"}
    request = urllib.request.Request(
        f"{jobs_address}/api/jobs/", json.dumps(again).encode(), {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=60).close()
    while "in /" not in ray_cli(jobs_address, work, f"ray job logs {job_id}-again"):
        assert time.monotonic() < deadline + 60
        time.sleep(0.5)
    ray_cli(jobs_address, work, f"ray job stop {job_id}-again")
