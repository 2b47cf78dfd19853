import os

import pytest

from rigging.filesystem import local_path, url_scheme


@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        ("/a/b", "file"),
        ("a/b", "file"),
        ("a:b", "file"),
        ("/a::b", "file"),
        ("./gs:/x", "file"),
        ("file:///a", "file"),
        ("gs://b/x", "gs"),
        ("S3://b/x", "s3"),
        ("memory://x", "memory"),
        ("simplecache::gs://b/x", "simplecache"),
    ],
)
def test_scheme(url: str, scheme: str) -> None:
    assert url_scheme(url) == scheme


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("/a/../b", "/b"),
        ("file:///a/b%20c", "/a/b%20c"),
        ("file:/a", "/a"),
        ("local:///a", "/a"),
        ("rel/x", os.path.abspath("rel/x")),
        ("file://rel/x", os.path.abspath("rel/x")),
        ("~/x", os.path.expanduser("~/x")),
        ("gs://b/x", None),
        ("memory:///x", None),
    ],
)
def test_local_path(url: str, path: str | None) -> None:
    assert local_path(url) == path
