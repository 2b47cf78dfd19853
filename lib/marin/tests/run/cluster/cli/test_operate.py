"""The operation of a cluster as it is typed: which `ray` commands are run, and what is asked before and said after."""

import re
from pathlib import Path

import pytest
import yaml

from marin.run.cluster.cli.commands import main
from marin.run.cluster.jobs.backup import select_jobs
from marin.run.cluster.ray_commands import READ_TOKEN
from support.marin.fake_ray import FakeRay
from support.marin.jobs_server import Job, JobsServer
from support.rigging.processes import is_gone

pytestmark = pytest.mark.process

FILE = "infra/marin-cluster.yaml"
LEFT = (
    "DELETE SERVER/v2/projects/hai-gcp-models/locations/us-central2-b/nodes/*"
    "  (left, {0}, ray-cluster-name=marin-us-central2)\n"
    "DELETE SERVER/compute/v1/projects/hai-gcp-models/zones/us-central2-b/instances/*"
    "  (left, {0}, ray-cluster-name=marin-us-central2)"
)
Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("up", f"RAY_UP_enable_autoscaler_v2=0 ray up -y {FILE}"),
        ("up --cluster us-east1", "RAY_UP_enable_autoscaler_v2=0 ray up -y infra/marin-us-east1.yaml"),
        ("update", f"RAY_UP_enable_autoscaler_v2=0 ray up -y --no-restart {FILE}"),
        ("down", f"ray down -y {FILE}\n{LEFT.format('in any state')}"),
        ("down --workers_only", f"ray down -y --workers-only {FILE}\n{LEFT.format('preempted')}"),
        ("down --preempted-only", LEFT.format("preempted")),
        ("status", f"ray exec {FILE} 'ray status'"),
        ("monitor --lines 5", f"ray monitor --lines 5 {FILE}"),
        ("ssh", f"ray attach {FILE}"),
        ("ssh -- ls -l /tmp", f"ray exec {FILE} 'ls -l /tmp'"),
        (f"exec {FILE} -- ls -l /tmp", f"ray exec {FILE} 'ls -l /tmp'"),
        ("exec us-east1 ls -l /tmp", "ray exec infra/marin-us-east1.yaml 'ls -l /tmp'"),
        ("dashboard", f"ray exec {FILE} '{READ_TOKEN}'\nray dashboard --port 8265 --remote-port 8265 {FILE}"),
        ("jobs --cluster http://h:1", "GET http://h:1/api/jobs/"),
        ("stop-job raysubmit_1 --cluster http://h:1", "POST http://h:1/api/jobs/raysubmit_1/stop"),
        (
            f"jobs --cluster {FILE}",
            f"ray dashboard --port PORT --remote-port 8265 {FILE}\nGET http://127.0.0.1:PORT/api/jobs/",
        ),
        (
            "restart --resubmit saved",
            f"ray dashboard --port PORT --remote-port 8265 {FILE}\n"
            "POST http://127.0.0.1:PORT/api/jobs/  (each saved job)",
        ),
        (
            "add-worker tpu_v4_16=2",
            f"""ray exec {FILE} 'python -c '"'"'import ray; ray.init(address='"'"'"'"'"'"'"'"'auto'"'"'"'"'"'"'"'"', """
            "logging_level=40); import ray.autoscaler.sdk as sdk; "
            """sdk.request_resources(bundles=[{"TPU-v4-16-head": 1}, {"TPU-v4-16-head": 1}])'"'"''""",
        ),
    ],
)
def test_a_dry_run_prints_and_runs_nothing(ray: FakeRay, capsys: Output, words: str, printed: str) -> None:
    command, *rest = words.split()
    assert main([command, "--dry-run", *rest]) == 0
    assert re.sub(r"http://127\.0\.0\.1:\d+/", "SERVER/", capsys.readouterr().out) == f"{printed}\n"
    assert ray.calls() == []


def test_a_dry_run_of_a_restart(ray: FakeRay, capsys: Output) -> None:
    assert main(["restart", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    kinds = [line.split("ray ")[-1].split()[0] if "ray " in line else line.split()[0] for line in lines]
    assert kinds == ["dashboard", "GET", "POST", "rsync-down", "down", "DELETE", "DELETE", "up", "dashboard", "POST"]
    assert ray.calls() == []


def test_up_chooses_the_autoscaler_takes_the_token_and_remembers_the_file(ray: FakeRay, capsys: Output) -> None:
    ray.set(running=False)
    assert main(["up", "--yes"]) == 0
    assert [words[0] for words in ray.calls()] == ["exec", "up", "exec"]
    assert ray.calls()[1] == ["up", "-y", FILE]
    assert ray.v2()[1] == "0"
    token = Path.home() / ".ray" / "auth_token"
    assert (token.read_text(), token.stat().st_mode & 0o777) == ("secret-of-the-head", 0o600)
    said = capsys.readouterr()
    assert str(token) in said.err
    assert "secret-of-the-head" not in said.out + said.err


def test_a_rename_after_up_is_refused_before_anything_runs(ray: FakeRay, project: Path, capsys: Output) -> None:
    assert main(["up", "--yes"]) == 0
    file = project / FILE
    before = file.read_text()
    calls = len(ray.calls())
    file.write_text(before.replace("tpu_v4_8:", "tpu_small:"))
    for command in ("up", "update", "down", "restart"):
        assert main([command, "--yes"]) == 3
        assert "'tpu_v4_8' became 'tpu_small'" in capsys.readouterr().err
    assert len(ray.calls()) == calls
    file.write_text(before)
    assert main(["down", "--yes"]) == 0
    file.write_text(before.replace("tpu_v4_8:", "tpu_small:"))
    ray.set(running=False)
    assert main(["up", "--yes"]) == 0


def test_update_takes_more_workers_and_refuses_another_image(ray: FakeRay, project: Path, capsys: Output) -> None:
    assert main(["up", "--yes"]) == 0
    file = project / FILE
    text = (
        file.read_text().replace("max_workers: 78", "max_workers: 142").replace("max_workers: 64", "max_workers: 128")
    )
    file.write_text(text)
    assert main(["update"]) == 0
    assert ray.calls()[-1] == ["up", "-y", "--no-restart", FILE]
    file.write_text(text.replace("-py311-cpu", "-py311-gpu"))
    assert main(["update"]) == 3
    assert "docker changed, which is used when a node starts" in capsys.readouterr().err


def test_mistakes_in_a_file_are_told_before_anything_runs(ray: FakeRay, project: Path, capsys: Output) -> None:
    file = project / FILE
    file.write_text(file.read_text().replace("min_workers: 4", "min_workers: 99"))
    assert main(["up", "--yes"]) == 3
    assert "tpu_v4_8: min_workers 99 must be from 0 to its max_workers, 64" in capsys.readouterr().err
    assert ray.calls() == []


@pytest.mark.parametrize("words", [["down"], ["up"], ["restart"], ["stop-job", "x", "--cluster", "http://127.0.0.1:1"]])
def test_what_destroys_is_not_done_where_nobody_can_be_asked(ray: FakeRay, capsys: Output, words: list[str]) -> None:
    ray.set(running=False)
    assert main(words) == 3
    assert "use --yes" in capsys.readouterr().err
    assert {call[0] for call in ray.calls()} <= {"exec"}


@pytest.mark.parametrize(
    ("command", "code"),
    [("echo out; exit 42", 42), ("echo out", 0), ("printf 'out\\n'", 0), ("echo out; kill -9 $$", None)],
)
@pytest.mark.parametrize("words", [["ssh", "--"], ["exec", "marin-cluster", "--"]], ids=["ssh", "exec"])
def test_a_command_on_the_head_has_its_own_end(
    ray: FakeRay, capfd: Output, words: list[str], command: str, code: int | None
) -> None:
    found = main([*words, command])
    out, err = capfd.readouterr()
    if code is None:
        assert found == 5
        assert "did not finish; Ray's output:\nFetched IP" in err
    else:
        assert (found, out) == (code, "out\n")


def test_a_job_by_the_name_of_its_cluster(ray: FakeRay, server: JobsServer, capfd: Output) -> None:
    server.on_submit = lambda job: job.end("FAILED", 7)
    words = ["--submission-id", "mine", "-e", "A", "1", "--", "python", "x.py"]
    assert main(["submit", server.address, *words]) == 7
    assert server.job.body["entrypoint"] == "python x.py"
    assert server.job.body["runtime_env"]["env_vars"]["A"] == "1"
    assert main(["submit", "nowhere", "--", "true"]) == 4
    assert main(["submit", "--", "true"]) == 2
    assert "put -- before the command" in capfd.readouterr().err
    assert main(["submit", "--help"]) == 0
    assert "--pip-deps" in capfd.readouterr().out


def test_list(ray: FakeRay, project: Path, capsys: Output) -> None:
    (project / "infra" / "marin-other.yaml").write_text("platform: iris\n")  # of another kind
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:5] == ["marin-cluster", "marin-us-central2", "us-central2-b", "tpu_v4_8", "4-64,"]
    assert len(lines) == 7


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("unpacked as nothing", "the working directory of job-1, job-2 is not on the head"),
        ("gone", "rsync-down"),
        (
            "refused",
            "the working directory of job-1, job-2 cannot be unpacked on the head: Failed to set up runtime env",
        ),
    ],
)
def test_a_restart_is_refused(ray: FakeRay, server: JobsServer, capsys: Output, state: str, said: str) -> None:
    if state == "unpacked as nothing":  # Ray makes the folder, and nothing is in it
        (ray.head / "tmp/ray/session_latest/runtime_resources/working_dir_files/_ray_pkg_1").mkdir(parents=True)
    elif state == "refused":
        server.on_submit = lambda job: job.end("FAILED", None, "Failed to set up runtime environment")
    environment = {"working_dir": "gcs://_ray_pkg_1.zip"}
    for name in ("job-1", "job-2"):
        server.jobs[name] = Job({"submission_id": name, "entrypoint": "x", "runtime_env": environment})
    assert main(["restart", "--yes"]) == 3
    assert said in capsys.readouterr().err
    assert {words[0] for words in ray.calls()} <= {"exec", "dashboard", "rsync-down"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add-worker", "tpu_v4_9"], "no worker type 'tpu_v4_9'; it has tpu_v4_16, tpu_v4_32"),
        (["add-worker", "tpu_v4_16=many"], "write a number of slices, e.g. tpu_v4_16=4"),
        (["add-worker", "tpu_v4_16=9"], "tpu_v4_16=9: its max_workers is 8"),
        (["up", "--cluster", "us-east2"], "no cluster named 'us-east2'"),
    ],
)
def test_what_is_refused(ray: FakeRay, capsys: Output, words: list[str], said: str) -> None:
    assert main(words) in (3, 4)
    assert said in capsys.readouterr().err


def test_jobs_and_stopping_one(ray: FakeRay, server: JobsServer, capsys: Output) -> None:
    server.jobs["raysubmit_1"] = Job({"submission_id": "raysubmit_1", "entrypoint": "python a.py --token=abcdef"})
    server.jobs["raysubmit_0"] = Job({"submission_id": "raysubmit_0", "entrypoint": "python b.py"}, status="FAILED")
    assert main(["jobs", "--cluster", FILE]) == 0
    assert capsys.readouterr().out.split()[:4] == ["RUNNING", "raysubmit_1", "python", "a.py"]
    assert main(["jobs", "--all", "--cluster", server.address]) == 0
    assert "raysubmit_0" in capsys.readouterr().out
    assert main(["stop-job", "raysubmit_1", "--yes", "--cluster", "us-central2"]) == 0
    assert server.stops == ["raysubmit_1"]
    assert "job raysubmit_1 is being stopped" in capsys.readouterr().err
    capsys.readouterr()
    assert main(["stop-job", "raysubmit_1", "--yes", "--cluster", server.address]) == 0
    assert "job raysubmit_1 has already ended" in capsys.readouterr().err
    assert main(["stop-job", "raysubmit_9", "--yes", "--cluster", server.address]) == 4
    assert all(map(is_gone, ray.tunnels()))


def test_a_restart_saves_jobs_and_submits_them_again(ray: FakeRay, server: JobsServer, capsys: Output) -> None:
    unpacked = ray.head / "tmp/ray/session_latest/runtime_resources/working_dir_files/_ray_pkg_1"
    unpacked.mkdir(parents=True)
    (unpacked / "a.py").write_text("print(1)")
    environment = {"working_dir": "gcs://_ray_pkg_1.zip", "env_vars": {"A": "b"}, "_ray_commit": "x"}
    noted = {"marin_entrypoint": '{"entrypoint_num_cpus": 2.0}'}
    body = {"submission_id": "job-1", "entrypoint": "python a.py", "runtime_env": environment, "metadata": noted}
    server.jobs["job-1"] = Job(body)
    server.jobs["job-0"] = Job({"submission_id": "job-0", "entrypoint": "true"}, status="SUCCEEDED")
    assert main(["restart", "--yes"]) == 0
    verbs = [words[0] for words in ray.calls()]
    assert verbs.index("rsync-down") < verbs.index("down") < verbs.index("up") < len(verbs) - 1
    (package,) = server.packages
    assert server.files() == {"a.py": b"print(1)"}
    sent = server.jobs["job-1"].body
    assert sent == {
        "entrypoint": "python a.py",
        "submission_id": "job-1",
        "runtime_env": {"working_dir": f"gcs://{package}", "env_vars": {"A": "b"}},
        "metadata": noted,
        "entrypoint_num_cpus": 2.0,
    }
    unpacked_by, *others = [name for name in server.jobs if name not in ("job-0", "job-1")]
    assert others == []
    assert server.jobs[unpacked_by].body["runtime_env"] == {"working_dir": "gcs://_ray_pkg_1.zip"}
    assert server.requests.count("POST /api/jobs/") == 2
    assert all(map(is_gone, ray.tunnels()))


def test_jobs_that_could_not_be_submitted_again_are_kept(ray: FakeRay, server: JobsServer, capsys: Output) -> None:
    server.jobs["job-1"] = Job({"submission_id": "job-1", "entrypoint": "true", "runtime_env": {}})
    ray.set(codes={"up": 1})
    assert main(["restart", "--yes"]) == 3
    said = capsys.readouterr().err
    folder = Path(said.rpartition("--resubmit ")[2].split()[0])
    assert (folder.stat().st_mode & 0o777, (folder / "jobs.json").stat().st_mode & 0o777) == (0o700, 0o600)
    server.jobs.clear()
    assert main(["restart", "--resubmit", str(folder)]) == 0
    assert list(server.jobs) == ["job-1"]
    server.jobs.clear()
    assert main(["restart", "--resubmit", str(folder)]) == 0
    assert list(server.jobs) == []


def test_which_jobs_are_submitted_again_and_in_which_order() -> None:
    def job(name: str, **more: object) -> dict[str, object]:
        return {"type": "SUBMISSION", "submission_id": name, "entrypoint": "x", "status": "RUNNING", **more}

    saved, lost = select_jobs(
        [
            job("b", start_time=2, status="PENDING"),
            job("a", start_time=1),
            job("ended", status="STOPPED"),
            {"type": "DRIVER", "job_id": "01000000", "status": "RUNNING", "entrypoint": "y"},
            job("modules", runtime_env={"py_modules": ["gcs://m.zip"]}),
            job("bucket", start_time=3, runtime_env={"working_dir": "gs://bucket/x.zip"}),
        ]
    )
    assert [(each.job_id, each.package) for each in saved] == [("a", ""), ("b", ""), ("bucket", "")]
    assert {each.job_id: each.reason for each in lost} == {
        "01000000": "it connected to the cluster without a submission",
        "modules": "its py_modules are only in the head's memory",
    }


def test_names_of_vms_are_those_of_a_failed_start_or_of_the_head(ray: FakeRay, project: Path, capsys: Output) -> None:
    running = yaml.safe_load((project / FILE).read_text())
    running["available_node_types"]["tpu_other"] = running["available_node_types"].pop("tpu_v4_8")
    running["setup_commands"] = ["filled out by ray"]
    (ray.head / "ray_bootstrap_config.yaml").write_text(yaml.safe_dump(running))
    assert main(["up", "--yes"]) == 3
    assert "worker type 'tpu_other' is gone" in capsys.readouterr().err
    assert [words[0] for words in ray.calls()] == ["exec"]
    ray.set(running=False, codes={"up": 1})
    assert main(["up", "--yes"]) == 3
    ray.set(running=False)
    file = project / FILE
    file.write_text(file.read_text().replace("cluster_name: marin-us-central2", "cluster_name: marin-other"))
    assert main(["up", "--yes"]) == 3
    assert "cluster_name 'marin-us-central2' became 'marin-other'" in capsys.readouterr().err


def test_what_ray_refuses_is_an_error_and_a_cluster_that_does_not_run_another(ray: FakeRay, capsys: Output) -> None:
    ray.set(codes={"down": 7})
    assert main(["down", "--yes"]) == 3
    assert f"`ray down -y {FILE}` failed with exit code 7" in capsys.readouterr().err
    ray.set(running=False)
    assert main(["status"]) == 5
    assert "Head node of cluster not found" in capsys.readouterr().err
