"""How containers are asked for, and which engine is used."""

from itertools import pairwise
from pathlib import Path

import pytest

from iris.worker.containers.engine import Bind, Container, Engine, container_name, find_engine
from iris.worker.containers.removal import Containers
from iris.worker.limits.plan import LimitRequest
from rigging.errors import InvalidRequest

HERE = {"podman": "/usr/bin/podman", "catatonit": "/usr/bin/catatonit"}
CONTAINER = Container(
    "iris-a-b", "docker.io/library/python:3.11", "/work", "/tokens/a.env",
    (Bind("/work", is_layered=True), Bind("/token"), Bind("/errors", "/errors/a.d", is_writable=True)),
    ("/dev/accel0",), 2000, LimitRequest(memory_bytes=2**30, processes=50, cpu_millis=1500, cpu_quota=True),
)  # fmt: skip


@pytest.mark.parametrize(("kind", "mode"), [("podman", "O"), ("docker", "ro")])
def test_a_container_has_the_limits_and_sees_only_what_its_attempt_needs(kind: str, mode: str) -> None:
    words = Engine(kind, (f"/usr/bin/{kind}", "--debug")).run(CONTAINER, "/w", ["nofile=5:9"], ["python", "-c", "1"])
    assert words[:3] == (f"/usr/bin/{kind}", "--debug", "run")
    given = dict(pairwise(words))
    assert [words[place + 1] for place, word in enumerate(words) if word == "--volume"] == [
        f"/work:/work:{mode}",
        "/token:/token:ro",
        "/errors/a.d:/errors:rw",
    ]
    wanted = {
        **{"--name": "iris-a-b", "--label": "iris.work-dir=/w", "--user": "2000:2000", "--device": "/dev/accel0"},
        **{"--memory": "1073741824b", "--memory-swap": "1073741824b", "--pids-limit": "50", "--cpus": "1.5"},
        **{"--security-opt": "no-new-privileges"},
        **{"--env-file": "/tokens/a.env", "--workdir": "/work", "--ulimit": "nofile=5:9", "--entrypoint": ""},
    }
    assert {name: given[name] for name in wanted} == wanted
    assert words[-4:] == ("docker.io/library/python:3.11", "python", "-c", "1")


def test_it_is_what_is_here_or_what_was_named() -> None:
    assert find_engine("auto", "/w", HERE.get) == Engine("podman", ("/usr/bin/podman",))
    assert find_engine("podman --runtime runc", "/w", HERE.get) == Engine(
        "podman", ("/usr/bin/podman", "--runtime", "runc")
    )
    assert find_engine("auto", "/w", {}.get) is find_engine("off", "/w", HERE.get) is None


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ("crictl", "containers is 'crictl'; write auto, off, or a command: podman or docker with options"),
        ("docker", "containers is 'docker', but there is no program 'docker' on this host"),
        ("", "write auto, off, or a command"),
    ],
)
def test_what_cannot_be_is_refused(choice: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        find_engine(choice, "/w", HERE.get)
    with pytest.raises(InvalidRequest, match="podman mounts no directory with a comma, colon or quote in its path"):
        find_engine("podman", "/work:dir", HERE.get)
    assert find_engine("auto", "/a,b", HERE.get) is None


async def test_a_container_that_starts_during_the_first_look_stays(tmp_path: Path) -> None:
    live, podman = ["/user/old/0:0"], tmp_path / "podman"
    names = " ".join(container_name(tmp_path, name) for name in (*live, "/user/new/0:0", "/user/gone/0:0"))
    podman.write_text(f'#!/bin/sh\ncd {tmp_path}; echo "$@" >> calls; if [ $1 = ps ]; then echo {names}; fi\n')
    podman.chmod(0o755)
    containers = Containers(Engine("podman", (str(podman),)), tmp_path)
    containers.keep_only(lambda: live)
    live.append("/user/new/0:0")
    await containers.close()
    removed = (tmp_path / "calls").read_text().splitlines()[1]
    assert removed == f"rm --force --ignore {container_name(tmp_path, '/user/gone/0:0')}"


async def test_a_removal_that_fails_is_tried_again(tmp_path: Path) -> None:
    podman = tmp_path / "podman"
    podman.write_text(f'#!/bin/sh\ncd {tmp_path}; echo "$@" >> calls; test $(wc -l < calls) -gt 1\n')
    podman.chmod(0o755)
    containers = Containers(Engine("podman", (str(podman),)), tmp_path)
    containers.ended("/user/job/0:0")
    await containers.close()
    assert len((tmp_path / "calls").read_text().splitlines()) == 2
