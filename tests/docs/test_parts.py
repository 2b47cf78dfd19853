"""Parts of programs that pages show, run with what they leave to the reader."""

import hmac
import os
import re
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fray import LocalClient, set_current_client
from rigging.filesystem import open_url
from support.marin.programs import run_program
from tests.docs.blocks import REPOSITORY, blocks_of


def python_of(page: str, heading: str = "") -> list[str]:
    found = [block.text for block in blocks_of(page) if block.language == "python" and heading in ("", block.heading)]
    assert found, (page, heading)
    return found


def run(code: str, given: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Execute a part of a program in a module of its own that has what it leaves out."""
    names: dict[str, Any] = {"__name__": "shown", **(given or {})}
    exec(compile(code, "<document>", "exec", dont_inherit=True), names)
    return names


@pytest.fixture
def local_client() -> Iterator[LocalClient]:
    client = LocalClient()
    with set_current_client(client):
        yield client
    client.shutdown()


def test_jobs_of_the_fray_page(local_client: LocalClient) -> None:
    seen: list[int] = []
    ours = run(python_of("docs/fray.md")[0], {"shard": seen.append})
    assert sorted(seen) == [0, 1, 2, 3]
    assert len(ours["jobs"]) == 4


class Counter:
    def __init__(self) -> None:
        self.value = 0

    def add(self, n: int) -> int:
        self.value += n
        return self.value


def test_actors_of_the_fray_page(local_client: LocalClient) -> None:
    from fray import typed_method

    (code,) = python_of("docs/fray.md", "Actors")
    ours = run(code, {"client": local_client, "Counter": Counter, "typed_method": typed_method})
    assert ours["counter"].add(0) == 3


@pytest.mark.process
@pytest.mark.soak
def test_a_test_on_any_backend(tmp_path: Path) -> None:
    (code,) = python_of("docs/fray.md", "In tests")
    conftest, separator, test = code.partition("# test_pipeline.py\n")
    assert separator
    (tmp_path / "conftest.py").write_text(conftest)
    given = (
        "from fray import current_client\ndef run_pipeline(path): (path / 'ran').write_text(str(current_client()))\n"
    )
    (tmp_path / "test_pipeline.py").write_text(given + test)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    assert re.search(r"\d+ passed", run_program([sys.executable, *words], tmp_path).stdout)


@pytest.mark.process
@pytest.mark.parametrize(
    ("library", "others", "told"),
    [
        ("rigging", ("fray", "iris", "marin"), ""),
        ("fray", ("iris", "marin"), "6 words, 6 in all\n4 words, 10 in all\n"),
        ("marin", (), "readme/words  SUCCESS"),
    ],
)
def test_the_readme_of_a_library_needs_no_other(
    library: str, others: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    (code,) = python_of(f"lib/{library}/README.md")
    script = tmp_path / "script.py"
    script.write_text(f"import sys\nsys.modules.update(dict.fromkeys({others}))\n{code}")
    assert told in run_program([sys.executable, str(script)], env={**os.environ, "MARIN_PREFIX": str(tmp_path)}).stdout
    if library == "rigging":
        assert re.fullmatch(r"written by holder number \d+\n", (tmp_path / "reports" / "today.txt").read_text())


def test_python_of_the_mirror_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shard = tmp_path / "there" / "tokenized" / "fineweb" / "shard-00000.parquet"
    shard.parent.mkdir(parents=True)
    shard.write_bytes(b"rows")
    monkeypatch.setenv("MARIN_PREFIX", str(tmp_path / "here"))
    monkeypatch.setenv("MARIN_MIRROR_PREFIXES", f"{tmp_path}/here,{tmp_path}/there")
    opened, fetched = python_of("docs/mirror.md")
    run(opened)
    assert (tmp_path / "here" / "tokenized" / "fineweb" / "shard-00000.parquet").read_bytes() == b"rows"
    run(fetched)


def test_two_folders_as_regions(tmp_path: Path) -> None:
    (shown,) = [block for block in blocks_of("docs/mirror.md") if block.first_line.startswith("$ mkdir -p /tmp/there")]
    commands = [line.removeprefix("$ ") for line in shown.text.splitlines() if line.startswith("$ ")]
    expected = [line for line in shown.text.splitlines() if not line.startswith("$ ")]
    done = run_program("\n".join(commands).replace("/tmp/", f"{tmp_path}/"))
    assert done.stdout.replace(f"{tmp_path}/", "/tmp/").splitlines() == expected


def test_the_mirror_config_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from rigging.filesystem.prefix_table import mirror_prefixes

    (shown,) = [block for block in blocks_of("docs/mirror.md") if block.language == "yaml"]
    (tmp_path / "mirror.yaml").write_text(shown.text)
    monkeypatch.delenv("MARIN_MIRROR_PREFIXES", raising=False)
    monkeypatch.setenv("MARIN_MIRROR_CONFIG", str(tmp_path / "mirror.yaml"))
    found = {prefix.region: prefix.url for prefix in mirror_prefixes()}
    assert found == {"us-central2": "gs://marin-us-central2", "us-east1": "gs://marin-us-east1", "lab": "/net/marin"}


def test_the_cluster_config_is_read(tmp_path: Path) -> None:
    from iris.controller.config.cluster_file import read_cluster_config

    (shown,) = [block for block in blocks_of("docs/reference/iris-clusters.md") if block.language == "yaml"]
    (tmp_path / "cluster.yaml").write_text(shown.text)
    config = read_cluster_config(tmp_path / "cluster.yaml")
    assert config.remote_state_dir == "gs://bucket/iris"
    assert [group.name for group in config.scale_groups] == ["v5p-64-b"]
    assert [budget.user for budget in config.user_budgets] == ["ann"]
    assert config.notify_allow == ("*.example.com", "10.0.0.0/8")


class Refused(Exception):
    pass


def test_the_receiver_of_notices() -> None:
    (code,) = python_of("docs/how-to/services.md")
    secret, body = b"of the cluster", b'{"event": "job_ended"}'

    def refuse() -> None:
        raise Refused

    def receive(at: int, signature: str) -> None:
        headers = {"Iris-Timestamp": str(at), "Iris-Signature": signature}
        run(code, {"hmac": hmac, "time": time, "secret": secret, "body": body, "headers": headers, "refuse": refuse})

    now = int(time.time())
    signed = {at: hmac.new(secret, f"{at}.".encode() + body, "sha256").hexdigest() for at in (now, now - 4000)}
    receive(now, f"sha256={signed[now]}")
    with pytest.raises(Refused):
        receive(now, "sha256=" + "0" * 64)
    with pytest.raises(Refused):
        receive(now - 4000, f"sha256={signed[now - 4000]}")


EXCERPTS = {
    "docs/contributing/add-a-cli-command.md": "lib/iris/src/iris/cli/user.py",
    "docs/contributing/add-an-rpc.md": "lib/iris/src/iris/controller/services/cluster.py",
}


@pytest.mark.parametrize("page", EXCERPTS)
def test_excerpts_are_in_the_source(page: str) -> None:
    """Every line of an excerpt is in the file that it is from, in that order; `...` stands for what is left out."""
    lines = iter([line.strip() for line in (REPOSITORY / EXCERPTS[page]).read_text().splitlines()])
    for code in python_of(page):
        for line in textwrap.dedent(code).splitlines():
            if line.strip() not in ("", "..."):
                assert line.strip() in lines, f"{page}: {line!r} is not in {EXCERPTS[page]} (there, or in that order)"


def test_the_files_of_a_remote_state() -> None:
    from iris.store.replicate.layout import Generation, Segment, Snapshot

    (shown,) = [block for block in blocks_of("docs/durability.md") if block.language == "text"]
    paths = [line.split()[0] for line in shown.text.splitlines()]
    real = [item.name for item in (Generation(1, 2), Snapshot(1, 2, 3), Segment(1, 2, 3, 4))]
    patterns = [re.sub(r"<\w+>", r"\\d+", path) for path in paths if "<" in path]
    assert len(patterns) == len(real)
    for pattern, name in zip(patterns, real, strict=True):
        assert re.fullmatch(pattern, name), (pattern, name)


@pytest.mark.soak
def test_python_of_the_ray_page(local_client: LocalClient, tmp_path: Path) -> None:
    import ray

    from marin.execution import ExecutorStep

    step, *tpu = python_of("docs/ray.md")
    (over_files,) = python_of("docs/how-to/map-files.md")
    made = run(step.replace("name=...", "name='x'"), {"ExecutorStep": ExecutorStep})["number_of_restarts"]
    assert made.pip_dependency_groups == ["quality_dedup_consolidate", "google-cloud-logging"]
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.txt").write_text("text")
    import fsspec

    given = {"fsspec": fsspec, "inputs": [str(tmp_path / "raw" / "a.txt")]}
    code = over_files.replace("gs://bucket", str(tmp_path))
    ours = run(code, given)
    assert (tmp_path / "scores" / "a.txt").exists(), ours["result"]
    for decorated in tpu:
        assert type(run(decorated, {"ray": ray})["my_tpu_job"]).__name__ == "RemoteFunction"
    with open_url(str(tmp_path / "scores.jsonl"), "r") as manifest:
        assert "a.txt" in manifest.read()
