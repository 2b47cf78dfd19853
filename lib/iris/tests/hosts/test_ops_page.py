"""The commands of OPS.md do what the page says, in its order; the lines that it explains are lines that there are."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.iris.controller_process import fixed_port
from support.iris.host_cluster import CONTROLLER, Cluster, until
from support.iris.hosts import Host
from support.iris.ssh_hosts import ssh_hosts, why_not

PAGE = Path(__file__).parents[2] / "OPS.md"
SOURCE = Path(__file__).parents[2] / "src" / "iris"


def section(heading: str, language: str = "bash") -> list[str]:
    """The blocks of a section of the page."""
    part = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", part, re.S)


def test_every_line_that_is_explained_is_in_the_source() -> None:
    rows = re.findall(r"^- `(.+?)`: ", PAGE.read_text(), re.M)
    assert len(rows) > 15
    source = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    assert [line for line in rows if line not in source] == []


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(60)


@pytest.mark.soak
@pytest.mark.timeout(240)
def test_the_commands_of_the_page(
    make_hosts: Callable[..., dict[str, Host]], page_environment: dict[str, str], tmp_path: Path
) -> None:
    env, hosts = page_environment, make_hosts("ctl", "host1")

    def here(text: str) -> str:
        return text.replace("/var/lib/", f"{tmp_path}/").replace("gs://bucket/", f"{tmp_path}/remote/")

    def run(text: str, code: int = 0) -> str:
        done = hosts["ctl"].run(["sh", "-ec", here(text)], env=env, cwd=tmp_path, timeout=120)
        assert done.returncode == code, f"{text}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def start(name: str, text: str) -> "subprocess.Popen[bytes]":
        return hosts[name].start(["sh", "-ec", f"exec {here(text)}"], tmp_path / f"{name}.log", env, tmp_path)

    def connected() -> bool:
        done = hosts["ctl"].run(["sh", "-c", here(look[0].splitlines()[0])], env=env, cwd=tmp_path, timeout=60)
        return "connected" in done.stdout

    serve, token, worker = section("Start")
    look = section("Look")
    clusters = tmp_path / ".config" / "marin" / "clusters"
    clusters.mkdir(parents=True)
    (clusters / "ops.yaml").write_text(here(section("Start", "yaml")[0]))
    controller = start("ctl", serve)
    until((tmp_path / "iris" / "user-token").exists, "the controller has written its token")
    run(token)
    start("host1", worker)
    until(connected, "the host is connected")
    submit = "iris --cluster=ops job run --no-wait --no-workspace --job-name stuck --cpu 1 --memory 50MB --disk 1MB --"
    run(f"{submit} sh -c 'echo begun; exec sleep 600'")
    until(lambda: "begun" in run("iris --cluster=ops job logs /root/stuck"), "the job runs")
    assert "/root/stuck" in run(look[0]), "what runs is seen"
    (upkeep,) = section("Jobs that make no progress")
    assert "begun" in run(upkeep)
    assert (tmp_path / "bug-report.tar.gz").stat().st_size > 500
    run("iris --cluster=ops job run --no-workspace --job-name talk --cpu 1 --memory 50MB --disk 1MB -- seq 1 20000")
    moved = tmp_path / "remote" / "iris" / "logs" / "root" / "talk"
    until(lambda: moved.exists() and list(moved.iterdir()), "its log is off the machine")
    (take_out,) = section("Take a host out, upgrade")
    run(take_out)
    snapshot, restore = section("Back up and restore")
    assert re.search(r"commit \d+ of .* is in ", run(snapshot))
    stop(controller)
    os.rename(tmp_path / "iris", tmp_path / "lost")
    run(restore)
    controller = start("ctl", serve)
    until(connected, "the host has come back to the restored controller")
    assert "killed" in run("iris --cluster=ops job summary /root/stuck"), "the state is what it was"
    assert run("iris --cluster=ops job logs /root/talk --max-lines 1") == "20000\n", "logs that were moved are, too"
    (rotate,) = section("Tokens and certificates")
    told = run(rotate)
    assert "host1" in told
    assert "is revoked" in told
    until(lambda: not connected(), "the revoked host is gone")
    stop(controller)


BY_SSH = """
platform: {{manual: {{}}}}
controller: {{manual: {{host: "{first}", port: {port}}}}}
storage: {{remote_state_dir: {remote}, disk_reserve: 0}}
defaults: {{ssh: {{user: {user}, key_file: {key}, known_hosts_file: {known}}}}}
scale_groups: [{{name: one, cpu: 1, memory: 1GB, disk: 1GB, slice_template: {{manual: {{hosts: ["{second}"]}}}}}}]
"""


@pytest.mark.process
@pytest.mark.timeout(240)
def test_the_commands_of_a_cluster_whose_machines_iris_makes(page_environment: dict[str, str], tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    kept = {key: value for key, value in page_environment.items() if key.startswith(("UV_", "SSL_", "PATH", "HTTP"))}
    kept |= {"UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", os.path.expanduser("~/.cache/uv"))}
    with ssh_hosts(tmp_path, 2, kept | {"UV_PYTHON": sys.executable}) as hosts:
        (first, second), settings = hosts.addresses, hosts.settings
        names = {"user": settings.user, "key": settings.key_file, "known": settings.known_hosts_file}
        file = BY_SSH.format(first=first, second=second, port=fixed_port(), remote=tmp_path / "remote", **names)
        (tmp_path / "lab.yaml").write_text(file)
        (commands,) = section("A cluster whose machines iris makes")
        script = ["sh", "-exc", commands]
        done = subprocess.run(script, env=page_environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        told = done.stdout + done.stderr
        assert done.returncode == 0, told
        words = ("cluster lab is ready at", "host 0: 127.0.0.1  serving", "serving on 0.0.0.0", "lab has no machines")
        assert [part for part in words if part not in told] == [], told


@pytest.mark.process
@pytest.mark.timeout(180)
def test_the_day_of_an_operator(
    make_hosts: Callable[..., dict[str, Host]], page_environment: dict[str, str], tmp_path: Path
) -> None:
    names = [f"host{number}" for number in range(1, 7)]
    cluster = Cluster(tmp_path, make_hosts("ctl", *names), lost_after=30)
    token = cluster.token(uses=len(names))
    for name in names:
        cluster.start_worker(name, name, "--join-token-file", str(token))
    until(lambda: cluster.connected() == set(names), "six hosts are connected")
    clusters = tmp_path / ".config" / "marin" / "clusters"
    clusters.mkdir(parents=True)
    address = f"controller: {{address: '{CONTROLLER}', token_file: {tmp_path}/state/user-token}}\n"
    (clusters / "ops.yaml").write_text(address)

    def run(text: str) -> str:
        done = cluster.hosts["ctl"].run(["sh", "-ec", text], env=page_environment, cwd=tmp_path, timeout=120)
        assert done.returncode == 0, f"{text}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    one_host = ("--cpu", "4", "--memory", "1GB", "--disk", "1MB")
    cluster.submit("failed", "--cpu", "1", "--", "sh", "-c", "exit 3")
    assert cluster.finish("/root/failed") == "failed"
    running = [cluster.submit(f"run-{name}", *one_host, "--", "sleep", "600") for name in names]
    until(lambda: {cluster.state(job) for job in running} == {"running"}, "six hosts are full")
    waiting = cluster.submit("batch", *one_host, "--priority", "batch", "--", "sleep", "600")

    morning, repair, evening = section("A day")
    seen = run(morning)
    assert all(name in seen for name in names)
    assert seen.count("joined") == len(names)
    assert "/root/batch" in seen
    done = run(repair)
    about = cluster.iris("cluster", "events", "--about", "/root/batch").stdout
    assert [line.split()[2] for line in about.splitlines()] == ["submitted", "held", "updated", "released"]
    assert "new fan" in done
    until(lambda: {cluster.state(job) for job in running} == {"running"}, "what was drained has a host again")
    assert cluster.ask("job", "summary", waiting)["pending_reason"].startswith("needs ")
    told = run(evening)
    assert "root" in told
    assert "cordoned" in told
    assert "released" in told
    assert cluster.state("/root/failed") == "pending", "it is to run again, once a host has room"
