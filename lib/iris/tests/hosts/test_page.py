"""The commands of docs/clusters.md put a cluster of several hosts together, as they are written there."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.testing.host_cluster import until
from iris.testing.hosts import Host, network, why_not

PAGE = Path(__file__).parents[4] / "docs" / "clusters.md"
WHY_NOT = why_not()
BIN = str(Path(sys.executable).parent)


def blocks(place: Path) -> list[str]:
    """The shell commands of the part about several hosts, with directories of this test in place of the page's."""
    part = PAGE.read_text().partition("## Several hosts, by hand")[2].partition("### Who is let in")[0]
    found = re.findall(r"```bash\n(.*?)```", part, re.S)
    return [text.replace("/var/lib/", f"{place}/") for text in found]


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, Host]]:
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    with network(["ctl", "host1", "host2"]) as made:
        yield made


@pytest.mark.timeout(180)
def test_the_commands_of_the_page_make_a_cluster(hosts: dict[str, Host], tmp_path: Path) -> None:
    serve, token, start, user, *more = blocks(tmp_path)
    assert not more
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("IRIS_", "XDG_"))}
    env = {**kept, "HOME": str(tmp_path), "PATH": f"{BIN}:{os.environ['PATH']}"}

    def run(text: str) -> "subprocess.CompletedProcess[str]":
        return hosts["ctl"].run(["sh", "-ec", text], env=env, cwd=tmp_path, timeout=120)

    controller = hosts["ctl"].start(["sh", "-ec", serve], tmp_path / "ctl.log", env, tmp_path)
    until((tmp_path / "iris" / "user-token").exists, "the controller has written its token")
    made = run(token)
    assert made.returncode == 0, made.stderr
    for name in ("host1", "host2"):
        text = start.replace("host1", name).replace("/iris-worker", f"/iris-worker-{name}")
        hosts[name].start(["sh", "-ec", text], tmp_path / f"{name}.log", env, tmp_path)
    admin = "IRIS_TOKEN_FILE=iris/user-token iris --controller-url 10.0.0.1:7077 cluster status"
    until(lambda: run(admin).stdout.count("connected") == 2, "both hosts are connected")
    env["IRIS_TOKEN_FILE"] = str(tmp_path / "iris" / "user-token")  # as in the page's second block
    done = run(user)
    assert done.returncode == 0, done.stderr
    assert "succeeded" in done.stderr
    assert re.search(r"host1 +connected .* 10\.0\.0\.2 ", done.stdout)
    assert (tmp_path / "ann.token").stat().st_mode & 0o777 == 0o600
    assert controller.poll() is None
