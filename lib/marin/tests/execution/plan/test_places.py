"""Two versions at one place are refused, however the place is spelled."""

from pathlib import Path

import pytest

from marin.execution import Executor, ExecutorStep, versioned
from marin.execution.version.paths import Places
from rigging.errors import Conflict


@pytest.mark.parametrize(
    "spelling", ["{prefix}//same", "{prefix}/./same", "{prefix}/link/same", "{prefix}/other", "same/"]
)
def test_one_place_spelled_in_two_ways(spelling: str, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    prefix.mkdir()
    (prefix / "link").symlink_to(prefix)
    (prefix / "other").symlink_to(prefix / "same")
    steps = [
        ExecutorStep(name="s", fn=print, config={"n": versioned(number)}, override_output_path=path)
        for number, path in enumerate(["same", spelling.format(prefix=prefix)])
    ]
    with pytest.raises(Conflict, match="two different versions have the output path"):
        Executor(str(prefix), str(tmp_path / "runs")).run(steps)


def test_places_of_buckets() -> None:
    places = Places()
    assert places.of("gs://b//a///c/") == places.of("gs://b/a/c") == "gs://b/a/c"
    assert places.of("gs://b/a") != places.of("s3://b/a")
