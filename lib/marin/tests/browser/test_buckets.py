"""The list of runs over gs:// and s3:// prefixes, against servers that speak those protocols."""

from pathlib import Path

import fsspec
import pytest

from marin.browser.confined import Confined
from marin.browser.index import RunIndex
from rigging.filesystem import url_to_fs
from support.marin.buckets import bucket_root
from support.rigging.clock import FakeClock

pytestmark = pytest.mark.process


@pytest.mark.parametrize("protocol", [pytest.param("gs", marks=pytest.mark.soak), "s3"])
def test_a_run_that_comes_to_a_bucket_is_listed_and_one_that_goes_is_not(protocol: str, tmp_path: Path) -> None:
    with bucket_root(protocol, "marin-browser-tests") as bucket:
        root, clock = f"{bucket}/{tmp_path.name}", FakeClock(1000.0)
        others = fsspec.filesystem(protocol, skip_instance_cache=True)

        def write(name: str) -> str:
            """As another process: this one's storage library knows nothing of it."""
            _, remote = url_to_fs(f"{root}/experiments/{name}.events.jsonl")
            others.pipe_file(remote, b"{}\n")
            return str(remote)

        old, new = "old-123abc-20981231T235959.000000Z-7", "new-123abc-20991231T235959.000000Z-7"
        write(old)
        index = RunIndex(Confined(f"{root}/experiments"), now=clock.now)
        assert [run.id for run in index.runs()] == [old]
        remote = write(new)
        clock.advance(60)
        assert [run.id for run in index.runs()] == [new, old]
        others.rm_file(remote)
        clock.advance(60)
        assert [run.id for run in index.runs()] == [old]
