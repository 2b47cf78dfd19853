import os
from pathlib import Path

import pytest

from rigging.filesystem import local_path, url_scheme
from rigging.filesystem.location import path_in


@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        ("/a/b", "file"), ("a/b", "file"), ("a:b", "file"), ("/a::b", "file"), ("./gs:/x", "file"),
        ("file:///a", "file"), ("gs://b/x", "gs"), ("S3://b/x", "s3"), ("memory://x", "memory"),
        ("simplecache::gs://b/x", "simplecache"),
    ],
)  # fmt: skip
def test_scheme(url: str, scheme: str) -> None:
    assert url_scheme(url) == scheme


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("/a/../b", "/b"), ("file:///a/b%20c", "/a/b%20c"), ("file:/a", "/a"), ("local:///a", "/a"),
        ("rel/x", os.path.abspath("rel/x")), ("file://rel/x", os.path.abspath("rel/x")),
        ("~/x", os.path.expanduser("~/x")), ("gs://b/x", None), ("memory:///x", None),
    ],
)  # fmt: skip
def test_local_path(url: str, path: str | None) -> None:
    assert local_path(url) == path


@pytest.mark.parametrize("directory", ["", "/", "a", "/a/b", "/a/b/", "gs://b", "gs://b/", Path("/a")])
@pytest.mark.parametrize("name", ["x", ".x", "x/y"])
def test_a_path_in_a_directory_is_what_os_path_join_says(directory: str | Path, name: str) -> None:
    assert path_in(directory, name) == os.path.join(directory, name)
