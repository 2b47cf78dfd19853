"""Every method of the filesystems we use is decided or refused; a new one of fsspec's own API fails here."""

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest

from rigging.errors import Denied
from rigging.filesystem.guard import CrossRegionGuardedFS, close_inherited_names
from rigging.filesystem.guard_names import INHERITED, PASSED_ON, is_passed_on

FSSPEC = ("fsspec.spec.AbstractFileSystem", "fsspec.asyn.AsyncFileSystem")
STORES = ("gcsfs.core.GCSFileSystem", "gcsfs.extended_gcsfs.ExtendedGcsFileSystem", "s3fs.core.S3FileSystem")


def class_of(path: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    # Importing gcsfs decides, by this variable, what the whole process has as its gs:// filesystem.
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def methods_and_async_twins(cls: type) -> Iterator[str]:
    for name in dir(cls):
        if name.startswith("__"):
            continue
        found = inspect.getattr_static(cls, name)
        if inspect.iscoroutinefunction(found) or (not name.startswith("_") and callable(getattr(cls, name))):
            yield name


@pytest.mark.parametrize("path", FSSPEC)
def test_every_method_and_async_twin_of_fsspecs_own_is_decided(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cls, own = class_of(path, monkeypatch), vars(CrossRegionGuardedFS)
    undecided = [
        name
        for name in methods_and_async_twins(cls)
        if not is_passed_on(name) and name not in INHERITED and not inspect.isfunction(own.get(name))
    ]
    assert undecided == [], "decide for each, in guard_names.py or guard.py: does content come back?"


@pytest.mark.parametrize("path", STORES)
def test_what_a_store_has_besides_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cls, own = class_of(path, monkeypatch), vars(CrossRegionGuardedFS)
    known = {name for name in methods_and_async_twins(cls) if is_passed_on(name) or name in own or name in INHERITED}
    rest = set(methods_and_async_twins(cls)) - known
    assert {"_call", "call"} < rest or {"_call_s3", "call_s3"} < rest
    store = type("Store", (Recording,), {name: lambda *_args: pytest.fail("reached") for name in rest})
    guard = CrossRegionGuardedFS(fs=store())
    for name in rest:
        with pytest.raises(Denied, match=rf"Store\.{name} is refused"):
            getattr(guard, name)("b/x")


def test_async_twins_are_as_guarded_as_what_they_are_twins_of() -> None:
    own = vars(CrossRegionGuardedFS)
    for name in (*PASSED_ON, *INHERITED, *own):
        if name.startswith("_") and inspect.iscoroutinefunction(own.get(name)):
            assert inspect.isfunction(own.get(name.removeprefix("_"))), name
        assert not (is_passed_on(f"_{name}") and inspect.isfunction(own.get(name))), name
    assert not PASSED_ON & INHERITED


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


def test_an_unknown_method_or_object_is_refused_plain_settings_pass_and_what_is_missing_is_missing() -> None:
    guard = CrossRegionGuardedFS(fs=Recording())
    for name in ("read_everything", "_read_everything"):
        with pytest.raises(Denied, match=rf"Recording\.{name} is refused"):
            getattr(guard, name)("b/x")
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
