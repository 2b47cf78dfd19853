"""What a task is told of the host that it runs on."""

import ipaddress
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from iris.actor.server import HOST_ENV
from iris.worker.paths import WorkPaths
from iris.worker.reachable import address_towards
from iris.worker.task_env import ACTOR_HOST_VARIABLE, Ground, TaskEnvironment
from iris.worker.types import Launch, StartRequest

# Of the block that is kept for documentation: routed like any other address, and nobody's.
ELSEWHERE = "192.0.2.7:4242"


def variables(environment: TaskEnvironment, controller: str, own: Mapping[str, str] | None = None) -> dict[str, str]:
    launch = Launch("/user/job", ("true",), env_vars=own or {})
    return environment.variables(StartRequest("/user/job/0:0", "/user/job/0", 0, launch), Ground(), controller, "", {})


def test_actors_of_a_task_listen_where_other_hosts_find_its_worker(tmp_path: Path) -> None:
    asked: list[str] = []

    def own_address(controller: str) -> str:
        asked.append(controller)
        return "" if controller.startswith("127.") else "10.0.0.5"

    environment = TaskEnvironment(WorkPaths(tmp_path), "w1", {}, own_address)
    assert ACTOR_HOST_VARIABLE == HOST_ENV
    assert variables(environment, ELSEWHERE)[HOST_ENV] == "10.0.0.5"
    assert HOST_ENV not in variables(environment, "127.0.0.1:4242")
    assert variables(environment, ELSEWHERE, {HOST_ENV: "10.1.0.5"})[HOST_ENV] == "10.1.0.5"
    assert asked == [ELSEWHERE, "127.0.0.1:4242"]


@pytest.mark.parametrize("controller", ["127.0.0.1:4242", "localhost:4242", "[::1]:4242", "", "no-port", "host:port"])
def test_a_controller_on_this_host_says_nothing_of_other_hosts(controller: str) -> None:
    assert address_towards(controller) == ""


def test_towards_another_host_it_is_an_address_that_one_can_listen_on() -> None:
    found = address_towards(ELSEWHERE)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        routed = probe.connect_ex((ELSEWHERE.rpartition(":")[0], 4242)) == 0
    assert bool(found) == routed
    if routed:
        assert not ipaddress.ip_address(found).is_loopback
        with socket.socket() as listener:
            listener.bind((found, 0))
