"""systemd units: what they run, that systemd takes them, and that nothing is overwritten."""

import os
import shutil
from pathlib import Path

import pytest

from iris.local import services
from iris.local.services import (
    Delegation,
    delegation_of,
    host_delegation,
    install_unit,
    iris_command,
    unit_path,
    unit_text,
    verify_unit,
)
from rigging.errors import Conflict, InvalidRequest


def worker_unit(*words: str) -> str:
    return unit_text("iris worker", iris_command("worker", "start", *words), as_user=False, leaves_tasks=True)


def test_a_worker_unit_leaves_tasks_to_the_worker_and_words_come_out_as_they_went_in() -> None:
    text = worker_unit("--controller", "10.0.0.1:7077")
    (command,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    program = command.removeprefix("ExecStart=").split()[0]
    assert Path(program).is_absolute()
    assert command.endswith("worker start --controller 10.0.0.1:7077")
    assert "\nKillMode=process\n" in text
    assert "\nRestart=always\n" in text
    line = next(line for line in worker_unit("a b", "100%", "$HOME", 'q"q', "b\\b", "").splitlines() if "Exec" in line)
    assert line.endswith('start "a b" "100%%" "$$HOME" "q\\"q" "b\\\\b" ""')
    with pytest.raises(InvalidRequest, match="has a line break"):
        worker_unit("a\nExecStartPost=b")


def delegating_unit(delegation: Delegation) -> str:
    command = iris_command("worker", "start")
    return unit_text("iris worker", command, as_user=False, leaves_tasks=True, delegation=delegation)


def test_a_worker_unit_is_given_its_control_group_as_the_host_can() -> None:
    assert "Delegate" not in worker_unit()
    by_systemd = delegating_unit(delegation_of(254, is_unified=True))
    assert "KillMode=process\nDelegate=yes\nDelegateSubgroup=worker\n" in by_systemd
    by_itself = delegating_unit(delegation_of(252, is_unified=True))
    assert "KillMode=mixed\nDelegate=yes\nTimeout" in by_itself, "it could not start beside groups with controllers"
    assert delegation_of(0, is_unified=True) is Delegation.LEAF
    assert "KillMode=process\nDelegate=yes\nTimeout" in delegating_unit(delegation_of(252, is_unified=False))


def test_a_unit_is_where_systemd_looks_and_has_a_name_of_one_word(tmp_path: Path) -> None:
    assert unit_path("iris-worker", as_user=False, environ={}) == Path("/etc/systemd/system/iris-worker.service")
    found = unit_path("iris-worker", as_user=True, environ={"XDG_CONFIG_HOME": str(tmp_path)})
    assert found == tmp_path / "systemd" / "user" / "iris-worker.service"
    for name in ("", "../x", "a b", "-x", "a" * 65):
        with pytest.raises(InvalidRequest, match="must be letters, digits"):
            unit_path(name, as_user=True, environ={})


def test_the_same_unit_is_written_again_and_another_is_kept(tmp_path: Path) -> None:
    place = tmp_path / "units" / "iris-worker.service"
    install_unit(place, worker_unit("--name", "a"))
    install_unit(place, worker_unit("--name", "a"))
    with pytest.raises(Conflict, match="exists with other content"):
        install_unit(place, worker_unit("--name", "b"))
    assert "--name a" in place.read_text()
    with pytest.raises(InvalidRequest, match="cannot write"):
        install_unit(place / "below" / "x.service", worker_unit())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_takes_both_units_and_tells_of_a_wrong_one(tmp_path: Path) -> None:
    controller = unit_text(
        "iris controller", iris_command("cluster", "controller", "serve"), as_user=False, leaves_tasks=False
    )
    units = {
        "iris-worker": worker_unit("--slice", "rack 4"),
        "iris-limited": delegating_unit(host_delegation()),
        "iris-controller": controller,
    }
    for name, text in units.items():
        place = tmp_path / f"{name}.service"
        assert install_unit(place, text) == ""
    wrong = tmp_path / "wrong.service"
    wrong.write_text(controller.replace("ExecStart=/", "ExecStart=not/"))
    assert verify_unit(wrong)


@pytest.mark.parametrize(
    ("given", "controller", "joined", "as_user", "found"),
    [
        (None, "10.0.0.1:7077", False, False, services.TASK_USERS),
        (None, "10.0.0.1:7077", True, False, None),
        (None, "10.0.0.1:7077", False, True, None),
        (None, "127.0.0.1:7077", False, False, None),
        ("off", "10.0.0.1:7077", False, False, None),
        ("5000-5009", "127.0.0.1:7077", True, False, "5000-5009"),
    ],
)
def test_new_hosts_of_clusters_beyond_loopback_run_tasks_as_users_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, controller: str, joined: bool, as_user: bool,
    found: str | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(services, "check_host", lambda uids, work_dir: None)
    if joined:
        (tmp_path / "credential.json").touch()
    assert services.task_users_of(given, controller, tmp_path, as_user=as_user) == found


def test_a_new_host_that_is_not_fit_for_that_is_refused_with_both_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(uids: object, work_dir: Path) -> None:
        raise InvalidRequest("--task-users: tasks with their own uids cannot read /root")

    monkeypatch.setattr(services, "check_host", closed)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(InvalidRequest, match=r"cannot read /root\. Or `--task-users off`: then tasks run as root"):
        services.task_users_of(None, "10.0.0.1:7077", tmp_path, as_user=False)
    with pytest.raises(InvalidRequest, match="must be FIRST-LAST"):
        services.task_users_of("many", "10.0.0.1:7077", tmp_path, as_user=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert services.task_users_of(None, "10.0.0.1:7077", tmp_path, as_user=False) == services.TASK_USERS
