"""Which cluster a command or client gets."""

from types import SimpleNamespace

import pytest

from iris.client.client import IrisClient
from iris.client.connection.discovery import cluster_at, find_cluster, local_cluster, running_cluster
from iris.local.start import LocalCluster
from iris.local.state import WORKER_ID, ClusterRecord, LocalPaths, write_record
from iris.rpc.auth import PrincipalKind, make_token
from iris.user_name import default_user
from rigging.errors import InvalidRequest, MarinError, NotFound

JOB = {
    "IRIS_CONTROLLER_ADDRESS": "10.0.0.2:7077",
    "IRIS_JOB_ID": "/ann/train",
    "IRIS_TASK_ID": "/ann/train/3",
    "IRIS_ATTEMPT_ID": "/ann/train/3:2",
    "IRIS_WORKER_ID": "w1",
}


def record(address, token="u:ann:x"):
    return ClusterRecord(1, address, token, "w", 2, "0", 1, 0.0, True)


@pytest.fixture
def inside(tmp_path):
    token = tmp_path / "token"
    token.write_text("j:/ann/train:x\n")
    return {**JOB, "IRIS_TOKEN_FILE": str(token)}


@pytest.mark.parametrize(
    ("address", "worker", "is_here"),
    [("h:1", None, True), ("h:2", None, False), ("h:1", "w1", False), ("h:2", WORKER_ID, True)],
)
def test_whether_a_cluster_is_of_this_machine(tmp_path, inside, address, worker, is_here):
    """By its record, where it is the local one's address; a job knows by its worker."""
    environ = {"IRIS_STATE_DIR": str(tmp_path)}
    assert not cluster_at(address, environ=environ).same_machine, "there is no local one"
    write_record(LocalPaths(tmp_path), record("h:1"))
    if worker is not None:
        environ |= inside | {"IRIS_CONTROLLER_ADDRESS": address, "IRIS_WORKER_ID": worker}
    assert cluster_at(address, environ=environ).same_machine == is_here


def test_inside_a_job_its_own_cluster_is_meant_and_of_another_it_is_a_plain_client(inside):
    target = find_cluster(environ=inside)
    assert target.inside is not None
    assert (target.resolve(False).address, target.resolve(False).token) == ("10.0.0.2:7077", "j:/ann/train:x")
    assert "j:/ann" not in repr(target.resolve(False)) + repr(target)
    assert find_cluster(address="other:1", environ=inside).inside is None
    with pytest.raises(MarinError, match="/nowhere/token"):
        find_cluster(environ={**inside, "IRIS_TOKEN_FILE": "/nowhere/token"}).resolve(False)


def test_a_job_of_a_local_cluster_follows_it_to_another_port(inside, tmp_path):
    paths = LocalPaths(tmp_path)
    local = {**inside, "IRIS_WORKER_ID": "local", "IRIS_WORK_DIR": str(paths.worker_dir)}
    assert find_cluster(environ=local).resolve(True).address == "10.0.0.2:7077"
    write_record(paths, record("127.0.0.1:5"))
    endpoint = find_cluster(environ=local).resolve(True)
    assert (endpoint.address, endpoint.token) == ("127.0.0.1:5", "j:/ann/train:x")
    assert find_cluster(environ=inside).resolve(True).address == "10.0.0.2:7077"


def test_a_file_in_the_current_directory_does_not_say_where_a_job_sends_its_token(inside, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_record(LocalPaths(tmp_path), record("127.0.0.1:5"))
    local = {**inside, "IRIS_WORKER_ID": "local"}  # of a worker that does not tell its tasks where they are
    assert find_cluster(environ=local).resolve(True).address == "10.0.0.2:7077"


def test_outside_it_is_the_local_one(tmp_path):
    target = find_cluster(environ={}, local=LocalCluster(LocalPaths(tmp_path)))
    assert target.is_local
    assert find_cluster("local", environ=JOB).is_local


def test_a_config_names_its_controller(tmp_path):
    (tmp_path / "token").write_text("u:ann:y")
    config = tmp_path / "big.yaml"
    config.write_text(f"controller:\n  address: 10.1.1.1:7\n  token_file: {tmp_path}/token\n")
    target = find_cluster(config=str(config), environ={})
    assert (target.name, target.resolve(False).address, target.resolve(False).token) == ("big", "10.1.1.1:7", "u:ann:y")
    assert (target.user, target.inside, target.is_local, target.same_machine) == ("ann", None, False, False)
    for wrong in ("controller: 7\n", "- controller\n", "", "controller: {address: 7077}\n", "other: {address: h}\n"):
        config.write_text(wrong)
        with pytest.raises(InvalidRequest, match=r"big\.yaml has no controller\.address \(a text such as"):
            find_cluster(config=str(config), environ={})
    config.write_text("controller: {")
    with pytest.raises(InvalidRequest, match=r"cannot read the cluster config .*big\.yaml"):
        find_cluster(config=str(config), environ={})


def test_a_config_may_name_a_token_in_the_home_directory_or_none(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    config = tmp_path / "big.yaml"
    config.write_text("controller: {address: 'h:7', token_file: ~/token}\n".replace("~/", "'~/").replace("}", "'}"))
    target = find_cluster(config=str(config), environ={})
    assert target.user == "", "there is none yet"
    (tmp_path / "token").write_text("u:ann:y\n")
    assert target.resolve(False).token == "u:ann:y"
    assert find_cluster(config=str(config), environ={}).user == "ann"
    config.write_text("controller: {address: 'h:7'}\n")
    target = find_cluster(config=str(config), environ={})
    assert (target.resolve(True).token, target.user) == ("", "")


def test_a_given_token_comes_before_a_file_and_that_before_the_local_record(tmp_path):
    (tmp_path / "mine").write_text("u:mine:x")
    (tmp_path / "theirs").write_text("u:theirs:x")
    environ = {"IRIS_STATE_DIR": str(tmp_path), "IRIS_TOKEN_FILE": str(tmp_path / "theirs")}
    write_record(LocalPaths(tmp_path), record("h:1", "u:local:x"))

    def token(address="h:1", environ=environ, **given):
        return cluster_at(address, environ=environ, **given).resolve(False).token

    assert token(token="u:given:x", token_file=str(tmp_path / "mine")) == "u:given:x"
    assert token(token_file=str(tmp_path / "mine")) == "u:mine:x"
    assert token() == "u:theirs:x"
    del environ["IRIS_TOKEN_FILE"]
    assert token() == "u:local:x"
    assert token("h:2") == "", "no other controller is shown it"


def test_the_local_cluster_is_started_until_it_has_answered_and_only_looked_for_afterwards(tmp_path):
    known = record("h:1")
    asked = []

    class Local:
        paths = LocalPaths(tmp_path)
        found = known

        def ensure(self):
            asked.append("ensure")
            return SimpleNamespace(record=known)

        def find(self):
            asked.append("find")
            return self.found

    local = Local()
    target = local_cluster(local)
    assert (target.name, target.is_local, target.same_machine) == ("local", True, True)
    first = target.resolve(False)
    assert (first.address, first.token, first.socket) == ("h:1", "u:ann:x", str(local.paths.socket))
    assert target.resolve(True) == first
    assert asked == ["ensure", "find"]
    local.found = None
    assert (target.resolve(True).address, target.resolve(True).token) == ("127.0.0.1:1", "")
    write_record(local.paths, known)
    assert target.resolve(True) == first, "whoever waits may yet see it come back there"
    running = running_cluster(known)
    assert (running.name, running.is_local, running.same_machine) == ("local", True, True)
    assert (running.resolve(False).address, running.resolve(True).token) == ("h:1", "u:ann:x")


def test_choices_that_cannot_be_are_named(tmp_path):
    with pytest.raises(InvalidRequest, match="--controller-url and --cluster both name a cluster"):
        find_cluster("local", address="h:1", environ={})
    with pytest.raises(NotFound, match="no-such-cluster"):
        find_cluster("no-such-cluster", environ={})


def test_jobs_are_of_the_user_whose_token_it_is(tmp_path):
    ann, admin = (make_token(b"s" * 32, kind, "ann") for kind in (PrincipalKind.USER, PrincipalKind.ADMIN))
    file = tmp_path / "token"
    file.write_text(f"{ann}\n")
    for given in ({"token": ann}, {"token_file": str(file)}):
        with IrisClient.of(cluster_at("h:1", environ={}, **given)) as client:
            assert client.full_name_prefix() == "/ann"
        with IrisClient.of(cluster_at("h:1", environ={}, **given), user="bob") as client:
            assert client.full_name_prefix() == "/bob"  # refused by the controller, in words
    for given in ({"token": admin}, {"token_file": str(tmp_path / "none")}):
        with IrisClient.of(cluster_at("h:1", environ={}, **given)) as client:
            assert client.full_name_prefix() == f"/{default_user()}"
