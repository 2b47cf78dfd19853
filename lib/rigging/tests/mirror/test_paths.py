import os
from typing import Any

import pytest

from rigging.errors import InvalidRequest
from rigging.filesystem.bucket_location import BUCKET_LOCATIONS
from rigging.filesystem.prefix_table import (
    canonical_url,
    crosses_regions,
    local_prefix,
    mirror_prefixes,
    other_prefixes,
)
from rigging.mirror.fs import MirrorFileSystem
from rigging.prefixes.paths import relative_path, without_hidden


@pytest.fixture(autouse=True)
def prefixes(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MARIN_MIRROR_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MARIN_PREFIX", "/data/marin/")
    monkeypatch.setenv(
        "MARIN_MIRROR_PREFIXES", "gs://marin-us-central2, s3://bucket/deep/prefix,file:///data/marin/deep"
    )


@pytest.mark.parametrize(
    ("given", "relative"),
    [
        ("a/b", "a/b"),
        ("mirror://a/b", "a/b"),
        ("mirror:a", "a"),
        ("", ""),
        ("mirror://", ""),
        ("a//b/./c/", "a/b/c"),
        ("mirror:///data/marin/a", "a"),
        ("/data/marin", ""),
        ("file:///data/marin/a/b", "a/b"),
        ("mirror://gs://marin-us-central2/a", "a"),
        ("gcs://marin-us-central2/a/", "a"),
        ("s3a://bucket/deep/prefix/x", "x"),
        ("/data/marin/deep/x", "x"),
        ("a..b/..c/d..", "a..b/..c/d.."),
        ("step-1:2/x", "step-1:2/x"),
        ("~/x", "~/x"),
    ],
)
def test_paths_are_relative_to_the_prefix(given, relative):
    assert relative_path(given) == relative
    assert relative_path(relative) == relative


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("mirror://../x", r"'\.\.' is refused"),
        ("/data/marin/../x", r"'\.\.' is refused"),
        ("..", r"'\.\.' is refused"),
        ("/etc/passwd", "under no prefix.*/data/marin.*gs://marin-us-central2"),
        ("/data/marine/x", "under no prefix"),
        ("mirror:///x", "under no prefix"),
        ("gs://other/a", "under no prefix"),
        ("gs://marin-us-central2x/a", "under no prefix"),
        ("s3://bucket/deep", "under no prefix"),
        ("mirror://mirror://a", "under no prefix"),
        ("FILE:///etc/passwd", "under no prefix"),
        ("file:/etc/passwd", "under no prefix"),
        ("a\0b", "NUL"),
    ],
)
def test_paths_that_leave_the_prefix_are_refused(given, reason):
    with pytest.raises(InvalidRequest, match=reason):
        relative_path(given)
    fs = MirrorFileSystem()
    for use in (fs.open, fs.info, fs.exists, fs.ls, fs.find, fs.rm, fs.isdir):
        with pytest.raises(InvalidRequest, match=reason):
            use(given)


def test_machinery_is_hidden_and_data_is_not():
    shown = ["a/x.lock", "uv.lock", ".hidden", "a/.marin", "b.fence"]
    hidden = [".marin-mirror/locks/x.lock", "a/.marin-tmp-1", "s/.status.lock", "s/.status.lock.fence", "q.lock.fence"]
    assert without_hidden([*shown, *hidden]) == shown


def test_the_listed_prefixes_are_the_table(monkeypatch: pytest.MonkeyPatch):
    assert [(prefix.url, prefix.region) for prefix in mirror_prefixes()] == [
        ("gs://marin-us-central2", "us-central2"),
        ("s3://bucket/deep/prefix", None),
        ("/data/marin/deep", None),
    ]
    assert canonical_url("gcs://b/x/") == canonical_url("gs://b/x") == "gs://b/x"
    assert canonical_url("file:///data/x/") == canonical_url("/data/x") == "/data/x"
    assert local_prefix().url == "/data/marin"
    monkeypatch.setenv("MARIN_MIRROR_PREFIXES", "gs://marin-us-central2,zip::x")
    with pytest.raises(InvalidRequest, match="'zip::x' is not a URL: expected scheme://path"):
        mirror_prefixes()
    monkeypatch.setenv("MARIN_PREFIX", "nosuch://x")
    with pytest.raises(InvalidRequest, match="'nosuch://x': nothing here opens nosuch:// URLs"):
        MirrorFileSystem().exists("x")


def test_the_built_in_regions_count_only_on_gs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MARIN_MIRROR_PREFIXES")
    assert mirror_prefixes() == ()
    monkeypatch.setenv("MARIN_PREFIX", "s3://bucket/x")
    assert mirror_prefixes() == ()
    monkeypatch.setenv("MARIN_PREFIX", "gs://marin-eu-west4/")
    others = [prefix.url for prefix in other_prefixes()]
    assert len(others) == 5
    assert "gs://marin-eu-west4" not in others


def test_regions_of_the_same_continent_are_asked_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MARIN_MIRROR_PREFIXES", "gs://marin-eu-west4,gs://marin-us-east1,gs://marin-us-west4")
    monkeypatch.setenv("MARIN_PREFIX", "gs://marin-us-central2")
    assert [prefix.region for prefix in other_prefixes()] == ["us-east1", "us-west4", "europe-west4"]


@pytest.mark.parametrize("where", ["named", "home", "project"])
def test_the_table_may_be_a_file(where, monkeypatch: pytest.MonkeyPatch, tmp_path: Any):
    monkeypatch.delenv("MARIN_MIRROR_PREFIXES")
    (tmp_path / "pyproject.toml").write_text("")
    path = {"named": "any.yml", "home": ".config/marin/mirror.yaml", "project": "infra/mirror.yaml"}[where]
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("prefixes:\n  us-east1: gs://elsewhere/data/\n  lab: /net/marin\n")
    if where == "named":
        monkeypatch.setenv("MARIN_MIRROR_CONFIG", path)
    assert [(prefix.url, prefix.region) for prefix in mirror_prefixes()] == [
        ("gs://elsewhere/data", "us-east1"),
        ("/net/marin", "lab"),
    ]
    file.write_text("prefixes: [gs://marin-us-east1]\n")
    os.utime(file, (1, 1))
    assert [prefix.region for prefix in mirror_prefixes()] == ["us-east1"]


@pytest.mark.parametrize("content", ["", "prefixes: 5", "prefixes: [1]", "a: [", "- x"])
def test_a_broken_or_missing_table_is_refused(content, monkeypatch: pytest.MonkeyPatch, tmp_path: Any):
    monkeypatch.delenv("MARIN_MIRROR_PREFIXES")
    (tmp_path / "t.yaml").write_text(content)
    for name, reason in (
        ("t.yaml", r"t\.yaml.*expected (`prefixes:`|the node content)"),
        ("none.yaml", "CONFIG='none.yaml'"),
    ):
        monkeypatch.setenv("MARIN_MIRROR_CONFIG", name)
        with pytest.raises(InvalidRequest, match=reason):
            mirror_prefixes()


def test_only_known_equal_regions_are_free(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(
        "MARIN_MIRROR_PREFIXES", "gs://marin-us-east1,gs://marin-us-east1/scratch,gs://marin-us-east5,/x,/y"
    )
    east1, scratch, east5, x, y = mirror_prefixes()
    assert not crosses_regions(east1, scratch)
    assert crosses_regions(east1, east5)
    assert crosses_regions(east1, x)
    assert crosses_regions(x, y)


def test_where_a_bucket_is_that_its_name_does_not_place_is_asked_once(gcs_server: Any, monkeypatch: pytest.MonkeyPatch):
    BUCKET_LOCATIONS.forget()
    locations = {"marin-us-east1": None, "placed-near": "us-east1", "placed-around": "us", "placed-far": "europe-west4"}
    for bucket, location in locations.items():
        if location is not None:
            gcs_server.create_bucket(bucket, location)
    monkeypatch.setenv("MARIN_MIRROR_PREFIXES", ",".join(f"gs://{bucket}" for bucket in (*locations, "no-such-bucket")))
    local, near, around, far, unknown = mirror_prefixes()
    for _ in range(3):
        assert not crosses_regions(near, local)
        assert not crosses_regions(around, local), "a multi-region is where its regions are"
        assert crosses_regions(far, local)
        assert crosses_regions(far, near)
        assert crosses_regions(unknown, local), "what cannot be learned is charged"
    asked = gcs_server.traffic()
    assert all(asked[bucket].requests.total() == 1 for bucket, location in locations.items() if location)
