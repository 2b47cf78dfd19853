"""Ends of jobs are told by a real controller to a real server, over failures and restarts, and to nobody else."""

import asyncio
import hashlib
import hmac
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from fray.testing.waiting import eventually
from iris.autoscale.missing import Missing
from iris.controller.notices.debts import FileDebts
from iris.controller.notices.notifier import NoticeRules, Notifier
from iris.core.state.view import ClusterView
from iris.rpc.generated import iris_pb2 as pb
from rigging.clock import unix_ms
from support.iris.controller import running_controller
from support.iris.webhook_server import WebhookServer, webhook_server
from support.iris.worker import ScriptedWorker

QUICK = NoticeRules(is_private=True, timeout_s=1.0, retry_s=(0.05, 0.2))


def fail(controller: Any, user: Any, url: str, name: str = "/ann/a", **observed: Any) -> None:
    """A job that ends with exit code 3."""
    with ScriptedWorker(controller.address, controller.worker_token("w1")) as worker:
        user.submit(name, notify_url=url)
        worker.wait_for_start(f"{name}/0:0")
        worker.observe(f"{name}/0:0", pb.TASK_STATE_FAILED, exit_code=3, error="boom: password=hunter2hunter2")
        user.wait(name)


def owed(state: Path) -> list[str]:
    return [path.name for path in (state / "notices").glob("*")]


def test_an_end_is_told_with_its_cause_and_signed(tmp_path: Path, connect: Any) -> None:
    state = tmp_path / "state"
    with webhook_server() as server, running_controller(state, notices=QUICK, cluster_name="big") as controller:
        fail(controller, connect(controller), server.url)
        eventually(lambda: server.told, "it is told")
        eventually(lambda: not owed(state), "the debt is paid")
    (told,) = server.told
    said = json.loads(told.body)
    assert (said["event"], said["job"], said["state"], said["exit_code"]) == ("job_ended", "/ann/a", "failed", 3)
    assert (said["cluster"], said["deciding_task"], said["tasks"]) == ("big", "/ann/a/0", {"failed": 1})
    assert "boom" in said["cause"]
    assert "hunter2" not in told.body.decode()
    assert said["submitted_at_ms"] <= said["finished_at_ms"]
    secret = (state / "notify-secret").read_bytes().strip()
    signed = told.headers["Iris-Timestamp"].encode() + b"." + told.body
    assert told.headers["Iris-Signature"] == f"sha256={hmac.new(secret, signed, hashlib.sha256).hexdigest()}"


async def test_missing_capacity_is_told_to_the_clusters_webhook(tmp_path: Path) -> None:
    with webhook_server(WebhookServer(answers=[500])) as server:
        rules = replace(QUICK, url=server.url)
        notifier = Notifier(ClusterView(), FileDebts(tmp_path), b"secret", rules, unix_ms, "big")
        notifier.tell_operator([Missing("v5e", 3, 7, "stock-out: none left")])
        await asyncio.to_thread(eventually, lambda: len(server.told) == 2, "it is told at the second try")
        await notifier.close()
    assert json.loads(server.told[1].body) == {
        "event": "capacity_missing",
        "cluster": "big",
        "scale_groups": [{"name": "v5e", "slices": 3, "since_ms": 7, "outcome": "stock-out: none left"}],
    }


def test_it_is_tried_again_under_the_same_name_until_it_is_heard(tmp_path: Path, connect: Any) -> None:
    with (
        webhook_server(WebhookServer(answers=[500, 0, 503])) as server,
        running_controller(tmp_path / "state", notices=QUICK) as controller,
    ):
        fail(controller, connect(controller), server.url)
        eventually(lambda: len(server.told) == 4, "it is told at the fourth try")
        eventually(lambda: not owed(tmp_path / "state"), "the debt is paid")
    assert len({told.headers["Iris-Delivery"] for told in server.told}) == 1


def test_what_is_owed_outlives_the_disk_where_the_state_does(tmp_path: Path, connect: Any) -> None:
    remote = str(tmp_path / "remote")
    with webhook_server(WebhookServer(answers=[500] * 1000)) as server:
        with running_controller(tmp_path / "lost", notices=QUICK, remote_state_dir=remote) as controller:
            fail(controller, connect(controller), server.url)
            eventually(lambda: server.told, "it was tried")
        assert owed(tmp_path / "lost") == []
        key = (tmp_path / "lost" / "notify-secret").read_bytes()
        server.told.clear()
        server.answers.clear()
        with running_controller(tmp_path / "new", notices=QUICK, remote_state_dir=remote):
            eventually(lambda: server.told, "a controller with another disk pays")
        told = len(server.told)
        assert (tmp_path / "new" / "notify-secret").read_bytes() == key, "and signs as the first did"
        with running_controller(tmp_path / "third", notices=QUICK, remote_state_dir=remote):
            pass
        assert len(server.told) == told, "what is paid is not paid again"
    assert json.loads(server.told[0].body)["job"] == "/ann/a"


def test_refused_for_good_it_is_not_tried_again(tmp_path: Path, connect: Any, caplog: pytest.LogCaptureFixture) -> None:
    with (
        webhook_server(WebhookServer(answers=[404])) as server,
        running_controller(tmp_path / "state", notices=QUICK) as controller,
    ):
        fail(controller, connect(controller), server.url)
        eventually(lambda: server.told and not owed(tmp_path / "state"), "it is given up")
    assert len(server.told) == 1
    assert "hush" not in caplog.text


def test_the_webhook_of_the_cluster_is_told_of_root_jobs(tmp_path: Path, connect: Any) -> None:
    with webhook_server() as server:
        # Not private and not allowed: what the operator has set needs no leave.
        rules = NoticeRules(url=server.url, timeout_s=1.0)
        with running_controller(tmp_path / "state", notices=rules) as controller:
            user = connect(controller)
            with ScriptedWorker(controller.address, controller.worker_token("w1")) as worker:
                for name in ("/ann/a", "/ann/a/child"):
                    user.submit(name)
                    worker.wait_for_start(f"{name}/0:0")
                for name in ("/ann/a/child", "/ann/a"):
                    worker.observe(f"{name}/0:0", pb.TASK_STATE_SUCCEEDED)
                    user.wait(name)
            eventually(lambda: server.told, "it is told")
    assert [json.loads(told.body)["job"] for told in server.told] == ["/ann/a"]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://169.254.169.254/latest/key", "not a public address; the operator can allow it"),
        ("http://localhost:9/key", "is at "),
        ("gopher://x/key", "begins with 'gopher'"),
    ],
)
def test_inner_addresses_are_refused_on_a_shared_cluster(tmp_path: Path, connect: Any, url: str, reason: str) -> None:
    with running_controller(tmp_path / "state", notices=NoticeRules()) as controller:
        with pytest.raises(grpc.RpcError) as caught:
            connect(controller).submit("/ann/a", notify_url=url)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert reason in caught.value.details()
        assert "key" not in caught.value.details()


def test_a_name_of_an_inner_address_is_refused(tmp_path: Path, connect: Any, caplog: pytest.LogCaptureFixture) -> None:
    with webhook_server(WebhookServer(answers=[500] * 1000)) as server:
        with running_controller(tmp_path / "state", notices=QUICK) as controller:
            fail(controller, connect(controller), f"http://localhost:{server.port}/key")
            eventually(lambda: server.told, "it was tried")
        server.told.clear()
        # What was let in by other rules, or when the name led elsewhere, is judged again.
        with running_controller(tmp_path / "state", notices=NoticeRules()):
            eventually(lambda: not owed(tmp_path / "state"), "it is given up")
    assert server.told == []
    assert "not a public address" in caplog.text


def test_the_address_is_shown_without_what_may_be_a_key(tmp_path: Path, connect: Any) -> None:
    with running_controller(tmp_path / "state", notices=QUICK) as controller:
        user = connect(controller)
        user.submit("/ann/a", notify_url="http://ann:pw@127.0.0.1:9/key")
        assert user.get("/ann/a", include_spec=True).spec.notify_url == "http://127.0.0.1:9/..."
