"""The commands on gs:// and s3:// prefixes, against servers that speak those protocols."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from marin.cli.context import CliContext
from marin.execution import Executor, ExecutorStep, output_path_of, versioned
from rigging.filesystem import read_bytes_or_none, url_to_fs, write_bytes_atomic
from rigging.lease.record import Lease
from support.marin.buckets import bucket_root
from support.marin.programs import run_program
from support.marin.recorded_runs import Done

pytestmark = pytest.mark.process

Marin = Callable[..., Done]


@pytest.fixture(params=["gs", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with bucket_root(request.param, "marin-cli-tests") as bucket:
        monkeypatch.setenv("MARIN_PREFIX", f"{bucket}/{tmp_path.name}")
        yield f"{bucket}/{tmp_path.name}"


def objects(root: str) -> set[str]:
    fs, place = url_to_fs(root)
    fs.invalidate_cache()
    return set(fs.find(place))


def test_a_bucket_is_read_like_a_disk(root: str, marin: Marin) -> None:
    one = ExecutorStep("raw/one", repr, versioned(1))
    executor = Executor(root, f"{root}/experiments", "In a bucket.")
    executor.run([ExecutorStep("two", repr, [output_path_of(one)])])
    path = executor.output_paths[one]
    write_bytes_atomic(f"{path}/.log", "zwölf\n".encode())
    before = objects(root)
    [run] = marin("runs", "--json").json
    assert (run["state"], run["ends"]["succeeded"], run["description"]) == ("succeeded", 2, "In a bucket.")
    shown = marin("show", "raw/one", "--json").json
    assert (shown["path"], shown["status"], shown["files"][".log"]) == (path, "SUCCESS", 7)
    assert marin("logs", "raw/one").out == "zwölf\n"
    assert [node["label"] for node in marin("graph", run["run"], "--json").json["nodes"]] == ["raw/one", "two"]
    assert marin("diff", run["run"], run["run"]).out == "0 added, 0 removed, 0 changed, 2 equal\n"
    assert marin("gc", "--older-than", "0s", "--json").json == []
    assert objects(root) == before, "reading writes nothing"
    done = marin("runs", f"{root.partition(':')[0]}://marin-cli-no-such-bucket/x")
    assert done.code in (0, 1, 4, 5)
    assert "Traceback" not in done.err
    assert "internal error" not in done.err


SCRIPT = """
from marin.execution import ExecutorStep, executor_main, output_path_of, versioned

one = ExecutorStep("raw/one", repr, versioned(1))
executor_main(steps=[ExecutorStep("two", repr, [output_path_of(one)])])
"""


def test_a_run_in_a_bucket_is_attested_and_verified(root: str, marin: Marin, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    run_program([sys.executable, "script.py"], tmp_path)
    before, file = objects(root), f"{root}.json"
    done = marin("attest", "script", "-o", file)
    assert (done.code, "2 step(s)" in done.err) == (0, True), done.err
    done = marin("verify", file, "--json", "--", str(tmp_path / "script.py"))
    assert done.code == 0, done.err
    # The value of `two` is the path of `one`, which is another one now.
    assert [(step["name"], step["status"]) for step in done.json["steps"]] == [("raw/one", "equal"), ("two", "close")]
    assert objects(root) == before


def test_leases_and_garbage_of_a_bucket_are_found_and_removed(root: str, marin: Marin) -> None:
    executor = Executor(root, f"{root}/experiments")
    executor.run([ExecutorStep("used", repr, versioned(1))])
    info: dict[str, Any] = {"output_path": f"{root}/gone-000001", "version": {}}
    for name, content in {".executor_info": json.dumps(info), ".executor_status": "SUCCESS", "data/x": "12345"}.items():
        write_bytes_atomic(f"{root}/gone-000001/{name}", content.encode())
    write_bytes_atomic(f"{root}/held-000002/.executor_status.lock", Lease("elsewhere", 1000.0).to_bytes())
    [lease] = marin("locks", "list", "--json").json
    assert (lease["state"], lease["holder"]) == ("stale", "elsewhere")
    assert marin("locks", "clear", "--yes").code == 0
    assert read_bytes_or_none(f"{root}/held-000002/.executor_status.lock") is None
    later = CliContext(now=lambda: time.time() + 3600)
    done = marin("gc", "--delete", "--yes", "--older-than", "0s", "--json", context=later)
    assert (done.code, done.json) == (0, {"deleted": [f"{root}/gone-000001"], "left": []})
    left = objects(root)
    assert not [name for name in left if "gone" in name]
    assert [name for name in left if "/used-" in name and name.endswith("/.executor_status")]
    day = CliContext(now=lambda: time.time() + 90_000)
    [aged] = marin("gc", "--older-than", "0s", "--runs-older-than", "1d", "--json", context=day).json
    assert aged["added"] == []
    [run] = marin("runs", "--json").json
    assert marin("rm", run["run"], "--yes", "--json").json["deleted"] == [aged["path"]]
    assert {name for name in objects(root) if "/code/packages-" not in name} == set(), "packages are shared by runs"
