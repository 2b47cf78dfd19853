"""The commands for a cluster at Google, on the test server. Its controller is played."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from iris.autoscale.rules import SshSettings
from iris.client.connection.discovery import find_cluster
from iris.cluster.types import JobState
from iris.lifecycle import access, publish, start
from iris.lifecycle.ssh import ssh_command
from rigging.errors import NotFound, Unavailable
from support.google import words
from support.google.server import Cut, GoogleServer
from support.iris.cli import Client, Iris, job
from support.iris.cloud_story import begin, until

FILE: Final = """
platform: {{gcp: {{project_id: p}}}}
controller:
  gcp: {{zone: us-central1-a, machine_type: n2-standard-4, port: {port}}}
storage: {{remote_state_dir: {remote}}}
defaults: {{ssh: {{user: ann}}}}
scale_groups:
  tpu:
    accelerator: {{type: tpu, variant: v5litepod-8}}
    cpu: 8
    memory: 16GB
    disk: 10GB
    zone: us-east5-a
    slice_template: {{gcp: {{runtime_version: v2}}}}
"""
REALLY_PUBLISH: Final = publish.publish
NODE: Final = {"acceleratorType": "v5litepod-8", "runtimeVersion": "v2"}


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[GoogleServer]:
    with GoogleServer(addresses=lambda _: "127.0.0.1") as server:
        monkeypatch.setenv("IRIS_GOOGLE_ENDPOINT", server.address)
        yield server


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "local"))
    path = tmp_path / "lab.yaml"
    path.write_text(FILE.format(remote=tmp_path / "remote", port=1))
    return str(path)


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the played controller answers, as the last item."""
    answers = [True]

    def reach(*_: Any) -> access.Reached:
        if not answers[-1]:
            raise Unavailable("refused")
        return access.Reached("127.0.0.1:1", "a:root:x", "1.0")

    monkeypatch.setattr(access, "reach", reach)
    monkeypatch.setattr(publish, "publish", publish.file_without_variables)
    return answers


@pytest.mark.usefixtures("answering")
def test_a_start_saves_the_cluster_under_its_name_and_a_stop_leaves_nothing(
    iris: Iris, client: Client, google: GoogleServer, file: str
) -> None:
    code, _, said = iris("cluster", "start", file)
    assert (code, "cluster lab is ready at 127.0.0.1:1" in said) == (0, True)
    assert "cluster lab runs at" in iris("cluster", "start", file)[2]
    assert len(google.cloud.instances) == 1
    (label,) = {instance["labels"]["iris-cluster"] for instance in google.cloud.instances.values()}
    for config in (None, file):
        found = find_cluster(None if config else "lab", config=config)
        assert (found.resolve(False).address, found.resolve(False).token) == ("127.0.0.1:1", "a:root:x")
    client.cluster = SimpleNamespace(version="1.0", workers=())
    assert ("lab", file) in {
        (item["cluster"], item["file"]) for item in json.loads(iris("cluster", "list", "--json")[1])
    }
    (first,) = google.cloud.instances.values()
    assert "cluster lab is ready at" in iris("cluster", "restart", file, "--yes")[2]
    assert client.operator.checkpoint.call_count == 1
    assert [instance["id"] == first["id"] for instance in google.cloud.instances.values()] == [False]
    code, _, said = iris("cluster", "start", "--local", file)
    assert (code, "lab is the name of a cluster that `iris cluster start` started elsewhere" in said) == (3, True)
    google.answer(
        "POST",
        "/v2/projects/p/locations/us-east5-a/nodes",
        {"nodeId": "tpu-0"},
        {**NODE, "labels": {"iris-cluster": label}},
    )
    dry = iris("cluster", "stop", file, "--dry-run")[1]
    assert [line.split()[0] for line in dry.splitlines()] == ["NAME", "tpu-0", "lab-controller"]
    google.fail_next("GET ...", words.UNAUTHENTICATED, 3)
    said = iris("cluster", "stop", file, "--dry-run")[2]
    assert "not listed: TPUs in all zones (p): Request had invalid authentication credentials." in said
    assert ("no machine is listed" in said, "has no machines" in said) == (True, False)
    client.jobs = [job("/ann/a")]
    assert "cluster lab has live jobs: /ann/a; stop them, or add --force" in iris("--cluster=lab", "cluster", "stop")[2]
    client.jobs, client.answer = [job("/ann/a", JobState.SUCCEEDED)], None
    assert "add --yes. Nothing was changed" in iris("--cluster=lab", "cluster", "stop")[2]
    assert len(google.cloud.nodes) + len(google.cloud.instances) == 2
    client.stop_cluster = lambda stop_jobs: [][stop_jobs:]  # type: ignore[attr-defined]
    assert iris("--cluster=lab", "cluster", "stop", "--yes")[0] == 0
    assert (google.cloud.nodes, google.cloud.instances) == ({}, {})
    with pytest.raises(NotFound):
        find_cluster("lab")
    with pytest.raises(Unavailable, match="starts the cluster itself if the file has"):
        find_cluster(config=file).resolve(False)


@pytest.mark.usefixtures("google")
def test_a_copied_file_changes_nothing_of_the_cluster_that_runs(
    iris: Iris, file: str, answering: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "publish", REALLY_PUBLISH)
    monkeypatch.setattr(publish, "check_reachable", lambda _: None)
    assert iris("cluster", "start", file)[0] == 0
    before = {path: path.read_bytes() for path in (tmp_path / "remote").rglob("*") if path.is_file()}
    copy, other = tmp_path / "copies/lab.yaml", tmp_path / "copies/den.yaml"
    copy.parent.mkdir()
    copy.write_text(Path(file).read_text().replace("port: 1}", "port: 2}"))
    other.write_text(copy.read_text())
    assert (
        f"cluster lab runs on port 1, started from {file}, and {copy} says 2" in iris("cluster", "start", str(copy))[2]
    )
    assert "has the state of cluster lab" in iris("cluster", "start", str(other))[2]
    record = tmp_path / "remote/cluster/started.json"
    record.write_text(json.dumps({**json.loads(before[record]), "host": "h"}))
    for command in ("start", "stop"):
        told = iris("cluster", command, file, *(["--yes"] if command == "stop" else []))[2]
        assert f"was started with its controller on host h, and {file} says at Google: stop it first" in told
        assert f"If that machine is gone for good, remove {record}. Nothing was changed" in told
    record.write_bytes(before[record])
    assert {path: path.read_bytes() for path in (tmp_path / "remote").rglob("*") if path.is_file()} == before
    answering.append(False)
    assert iris("cluster", "stop", file, "--yes")[0] == 0
    answering.append(True)
    assert iris("cluster", "start", str(other))[0] == 0


@pytest.mark.usefixtures("answering", "google")
def test_an_interrupted_start_is_listed_until_it_is_finished_or_stopped(
    iris: Iris, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def state() -> list[str]:
        return [item["state"] for item in json.loads(iris("cluster", "list", "--json")[1]) if item["cluster"] == "lab"]

    async def interrupted(*_: Any) -> None:
        assert state() == ["starting"]
        assert "is starting cluster lab; wait until it is ready" in iris("cluster", "start", file)[2]
        raise KeyboardInterrupt

    assert state() == []
    with monkeypatch.context() as patch:
        patch.setattr(start, "start_controller", interrupted)
        iris("cluster", "start", file)
    assert state() == ["interrupted"]
    with pytest.raises(Unavailable, match=f"`iris cluster start {file}` goes on with it"):
        find_cluster("lab")
    assert iris("--cluster=lab", "cluster", "stop", "--yes")[0] == 0
    assert state() == []


@pytest.mark.process
def test_a_stop_without_controller_killed_between_two_deletes_is_finished_by_the_next(
    iris: Iris, google: GoogleServer, file: str, answering: list[bool]
) -> None:
    def deletes() -> list[str]:
        return sorted(each.rpartition("/")[2] for each in google.requests if each.startswith("DELETE"))

    iris("cluster", "start", file)
    answering.append(False)
    (label,) = {instance["labels"]["iris-cluster"] for instance in google.cloud.instances.values()}
    place, labels = "/v2/projects/p/locations/us-east5-a/nodes", {"iris-cluster": label, "iris-group": "tpu"}
    for number in range(4):
        google.answer("POST", place, {"nodeId": f"tpu-{number}"}, {**NODE, "labels": labels})
    google.fail_next("DELETE .../nodes/tpu-1", Cut.HANGS)
    stop = begin({}, "--cluster=lab", "cluster", "stop", "--yes")
    until(lambda: len(google.cloud.nodes) == 1 and not (google.cloud.instances or google.failures_left))
    stop.kill()
    stop.communicate()
    google.release()
    machines = ["lab-controller", "tpu-0", "tpu-1", "tpu-2", "tpu-3"]
    assert deletes() == machines, "one round, also of the controller"
    assert iris("--cluster=lab", "cluster", "stop", "--yes")[0] == 0
    assert (google.cloud.nodes, deletes()) == ({}, sorted([*machines, "tpu-1"]))


def test_machines_are_inspected_while_no_controller_answers(
    iris: Iris, google: GoogleServer, file: str, answering: list[bool]
) -> None:
    iris("cluster", "start", file)
    (machine,) = google.machines("lab-controller")
    machine.guest["iris", "phase"] = "starting"
    assert iris("--cluster=lab", "cluster", "vm", "status", "controller")[1].endswith("  serving\n")
    answering.append(False)
    machine.serial, machine.guest["iris", "phase"] = "one\ntwo\nthree\n", "starting"
    (label,) = {instance["labels"]["iris-cluster"] for instance in google.cloud.instances.values()}
    place, labels = "/v2/projects/p/locations/us-east5-a/nodes", {"iris-cluster": label, "iris-group": "tpu"}
    google.answer("POST", place, {"nodeId": "tpu-0"}, {**NODE, "labels": labels})

    def vm(*words: str) -> tuple[int, str, str]:
        return iris("--cluster=lab", "cluster", "vm", *words)

    assert vm("status", "controller")[1].splitlines() == [
        "controller lab-controller: instance in us-central1-a, n2-standard-4, RUNNING",
        "host 0: 127.0.0.1 (127.0.0.1)  starting",
    ]
    assert "slice tpu-0: node in us-east5-a, v5litepod-8, READY\nhost 0: 127" in vm("status", "tpu-0")[1]
    assert vm("logs", "controller", "-n", "2")[1] == "two\nthree\n"
    journal = "sudo journalctl --no-pager -u iris-worker -u google-startup-scripts -n 100"
    assert vm("logs", "tpu-0", "--print")[1] == f"ssh -o ConnectTimeout=10 -l ann 127.0.0.1 {journal}\n"
    code, _, said = vm("status", "tpu-1")
    assert (code, said) == (4, "the cluster has no machine 'tpu-1'; did you mean 'tpu-0'?\n")
    assert vm("logs", "tpu-0", "--worker", "2")[0] == 3
    assert [each["name"] for each in json.loads(vm("list", "--json")[1])] == ["tpu-0", "lab-controller"]
    assert iris("cluster", "vm", "list")[0] == 2, "no cluster is named"


@pytest.mark.parametrize(
    ("host", "words"), [("h", "-p 2200 h"), ("h:7", "-p 7 h"), ("[::1]:22", "ConnectTimeout=10 ::1")]
)
def test_a_host_by_ssh_may_have_its_own_port(host: str, words: str) -> None:
    assert " ".join(ssh_command(SshSettings(port=2200), host)).endswith(words)


def test_the_pages_of_a_cluster_elsewhere_come_through_a_tunnel(
    iris: Iris, client: Client, google: GoogleServer, file: str, answering: list[bool]
) -> None:
    assert answering
    assert google
    iris("cluster", "start", file)
    client.operator.login_link.return_value = ("http://127.0.0.1:8787/login?token=x", "")
    assert iris("--cluster=lab", "cluster", "dashboard", "--print")[1].splitlines() == [
        "http://127.0.0.1:8787/login?token=x",
        "ssh -o ConnectTimeout=10 -l ann -N -o ExitOnForwardFailure=yes -L 127.0.0.1:8787:127.0.0.1:8787 127.0.0.1",
    ]
