"""Where the paths in requirements and the like point."""

from pathlib import Path

import pytest

from iris.requirements import file_target


@pytest.mark.parametrize(
    ("written", "target"),
    [
        ("../lib", "/w/lib"),
        ("./a/../b", "/w/p/b"),
        ("/abs/lib", "/abs/lib"),
        ("lib%20a#1", "/w/p/lib%20a#1"),
        ("file:///abs/lib%20a#egg=a", "/abs/lib a"),
        ("FILE:../lib", "/w/lib"),
    ],
)
def test_a_path_is_taken_as_it_is_written_and_only_a_url_is_decoded(written: str, target: str) -> None:
    assert file_target(written, Path("/w/p")) == Path(target)
