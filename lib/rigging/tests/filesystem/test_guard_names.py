"""Every method of the filesystems we use is classified; a release that brings a new one fails here, not in the bill."""

import importlib
import inspect
from collections.abc import Iterator

import fsspec
import pytest

from rigging.errors import Denied
from rigging.filesystem.guard import CrossRegionGuardedFS, close_inherited_names
from rigging.filesystem.guard_names import KINDS, NameKind

CLASSES = (
    "fsspec.spec.AbstractFileSystem",
    "fsspec.asyn.AsyncFileSystem",
    "gcsfs.core.GCSFileSystem",
    "gcsfs.extended_gcsfs.ExtendedGcsFileSystem",
    "s3fs.core.S3FileSystem",
)
PASSED_ON = (NameKind.FREE, NameKind.WRITE)


def public_names_and_async_twins(cls: type) -> Iterator[str]:
    for name in dir(cls):
        if name.startswith("__"):
            continue
        if not name.startswith("_") or inspect.iscoroutinefunction(inspect.getattr_static(cls, name)):
            yield name


@pytest.mark.parametrize("path", CLASSES)
def test_every_public_method_and_async_twin_is_classified(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Importing gcsfs decides, by this variable, what the whole process has as its gs:// filesystem.
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    module, _, name = path.rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    unclassified = [name for name in public_names_and_async_twins(cls) if name not in KINDS]
    assert unclassified == [], "decide for each in guard_names.py: does content come back?"


def test_every_guarded_name_is_defined_by_the_guard_itself() -> None:
    own = vars(CrossRegionGuardedFS)
    assert [n for n, kind in KINDS.items() if kind is NameKind.GUARDED and not inspect.isfunction(own.get(n))] == []


def test_async_twins_are_as_guarded_as_what_they_are_twins_of() -> None:
    for name, kind in KINDS.items():
        twin = KINDS.get(f"_{name}")
        if twin is not None and name != "open":
            assert (twin in PASSED_ON) == (kind in PASSED_ON), name


class Recording(fsspec.AbstractFileSystem):
    """Knows no regions; says which of its methods were reached."""

    protocol = "gs"
    cachable = False

    def read_everything(self) -> bytes:
        raise AssertionError("the guard let an unknown method through")

    def _read_everything(self) -> bytes:
        raise AssertionError("the guard let an unknown method through")

    client = object()
    project = "p"
    unknown_setting = 3


@pytest.mark.parametrize("name", ["read_everything", "_read_everything"])
def test_an_unknown_method_is_refused_by_name(name: str) -> None:
    guard = CrossRegionGuardedFS(fs=Recording())
    with pytest.raises(Denied, match=rf"Recording\.{name} is refused"):
        getattr(guard, name)("b/x")


def test_an_unknown_object_is_refused_plain_settings_pass_and_what_is_missing_is_missing() -> None:
    guard = CrossRegionGuardedFS(fs=Recording())
    with pytest.raises(Denied, match="client"):
        _ = guard.client
    assert (guard.project, guard.unknown_setting) == ("p", 3)
    assert not hasattr(guard, "no_such_thing")


def test_a_method_that_a_new_release_adds_to_the_base_class_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsspec.AbstractFileSystem, "slurp", lambda self, path: b"all of it", raising=False)

    class GuardOfThatRelease(CrossRegionGuardedFS):
        pass

    close_inherited_names(GuardOfThatRelease)
    guard = GuardOfThatRelease(fs=Recording())
    with pytest.raises(Denied, match="slurp is refused"):
        guard.slurp("b/x")
