"""In which order namespaces and mounts are made, and what is used where a host allows less; the kernel is played.

That the real one then keeps tasks apart is shown by `test_isolation`, as far as the host allows.
"""

import errno
import logging
import os
import re
import shutil
import stat
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from iris.worker.isolation import syscalls, views
from iris.worker.isolation.plan import IsolationMode, Mount
from iris.worker.isolation.views import ViewFailed, no_views, open_views, shared_paths

OVERLAY, BIND, COPY = IsolationMode.OVERLAY, IsolationMode.BIND, IsolationMode.COPY
NEW = syscalls.CLONE_NEWNS


class Kernel:
    """Notes what it is asked for. In forks, where abilities are tried, its mounts work as well as `works` says.

    Attributes:
        refused: Words of options, or "bind", that it does not mount. flaws: What its mounts get wrong.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.refused: set[str] = set()
        self.flaws: set[str] = set()
        self.main = os.getpid()
        self._patch = monkeypatch
        for name in ("unshare", "setns", "raise_ambient", "clear_ambient"):
            monkeypatch.setattr(syscalls, name, self._noting(name))
        monkeypatch.setattr(syscalls, "mount", self.mount)
        monkeypatch.setattr(syscalls, "bind", self.bind)
        monkeypatch.setattr(os, "geteuid", lambda: 0)

    def _noting(self, name: str) -> Callable[..., None]:
        return lambda *words: self.calls.append((name, *words))

    def taken(self) -> list[object]:
        """The names of the calls since the last time."""
        calls, self.calls = self.calls, []
        return [call[0] for call in calls]

    def mount(self, source: str, target: str, kind: str, flags: int, options: str = "") -> None:
        self.calls.append(("mount", source, target, kind, flags, options))
        found = re.findall("dir=([^,]*)", options)
        if word := next((word for word in self.refused if word in options), ""):
            raise OSError(errno.EINVAL, f"no {word}")
        if kind != "overlay" or os.getpid() == self.main:
            return
        lower = found[0]
        if "shared" in self.flaws:
            os.rmdir(target)
            os.symlink(lower, target)
        else:
            shutil.copytree(lower, target, dirs_exist_ok=True)
        # In a fork, which ends with this try.
        if "shared file" in self.flaws:
            os.unlink(f"{target}/changed")
            os.link(f"{lower}/changed", f"{target}/changed")
        if "shared folder" in self.flaws:
            self._patch.setattr(shutil, "rmtree", lambda path: (_emptied(path), _emptied(f"{lower}/folder", False)))
        if "kept" in self.flaws:
            self._patch.setattr(Path, "write_text", lambda *_: None)
        if "there" in self.flaws:
            self._patch.setattr(Path, "unlink", lambda *_: None)
        if "filled" in self.flaws:
            self._patch.setattr(Path, "mkdir", lambda path: (os.mkdir(path), path.joinpath("file").touch()))

    def bind(self, source: str, target: str, read_only: bool) -> None:
        self.calls.append(("bind", source, target, read_only))
        if "bind" in self.refused:
            raise OSError(errno.EPERM, "no bind")
        if os.getpid() != self.main and read_only and "writable" not in self.flaws:
            self._patch.setattr(Path, "touch", _read_only)


def _emptied(folder: str | Path, and_removed: bool = True) -> None:
    for name in os.listdir(folder):
        os.unlink(f"{folder}/{name}")
    if and_removed:
        os.rmdir(folder)


def _read_only(path: Path) -> None:
    raise OSError(errno.EROFS, "Read-only file system", path)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Kernel:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lower").mkdir()
    caplog.set_level(logging.INFO, views.__name__)
    return Kernel(monkeypatch)


def own(descriptor: object) -> str:
    assert isinstance(descriptor, int)
    assert not os.get_inheritable(descriptor)
    return os.readlink(f"/proc/self/fd/{descriptor}")


REACHES = "a task's changes reach the shared directory"
UNCHANGED = ("kept", "there", "filled")


@pytest.mark.process
class TestAbility:
    """What is used is what was seen to work, and the log says why it is nothing better."""

    @pytest.mark.parametrize(
        ("refused", "flaws", "mode", "options", "said"),
        [
            ((), (), OVERLAY, ",redirect_dir=on,volatile", ()),
            (("volatile",), (), OVERLAY, ",redirect_dir=on", ("volatile': [Errno 22] no volatile",)),
            (("redirect_dir",), (), OVERLAY, "", ("redirect_dir=on': [Errno 22] no redirect_dir",)),
            (("lowerdir",), (), BIND, "", ("no overlay with options '': [Errno 22] no lowerdir",)),
            *(((), (flaw,), BIND, "", (REACHES,)) for flaw in ("shared", "shared file", "shared folder")),
            *(((), (flaw,), BIND, "", ("a task's changes are lost",)) for flaw in UNCHANGED),
            (("lowerdir", "bind"), (), COPY, "", ("no lowerdir", "no mounts: [Errno 1] no bind")),
            (("lowerdir",), ("writable",), COPY, "", ("no mounts: a read-only mount can be written",)),
        ],
    )
    def test_the_best_that_works(
        self, kernel: Kernel, tmp_path: Path, caplog: pytest.LogCaptureFixture,
        refused: tuple[str, ...], flaws: tuple[str, ...], mode: IsolationMode, options: str, said: tuple[str, ...],
    ) -> None:  # fmt: skip
        kernel.refused, kernel.flaws = {*refused}, {*flaws}
        found = open_views(tmp_path)
        assert found.mode is mode
        assert not found.in_user_namespace
        assert f"isolation between tasks: {mode}" in caplog.text
        assert ("(" in caplog.messages[-1]) == bool(said)
        assert all(reason in caplog.text for reason in said)
        assert not [name for name in os.listdir(tmp_path) if name.startswith(".probe")], "nothing is left of the tries"
        if mode is OVERLAY:
            kernel.refused.clear()
            found.enter([Mount("/t", "/s", str(tmp_path / "layer"))])
            assert str(kernel.calls[-1][-1]).endswith(f"/layer.work{options}")

    def test_what_is_wanted_is_tried(self, kernel: Kernel, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        assert open_views(tmp_path, BIND).mode is BIND
        assert "overlay" not in caplog.text
        kernel.calls.clear()
        assert open_views(tmp_path, COPY).mode is COPY
        assert "isolation between tasks: copy (stronger isolation is not configured)" in caplog.text
        assert kernel.calls == []
        kernel.refused = {"lowerdir", "bind"}
        open_views(tmp_path)
        assert kernel.calls == [], "each try is made in a fork: it changes no namespace but its own"


def test_what_is_shared_is_read_only_and_the_trash_hidden_outside_of_the_home(kernel: Kernel, tmp_path: Path) -> None:
    found = open_views(tmp_path)
    unshared, private, again, *binds = kernel.calls
    assert unshared == again == ("unshare", NEW)
    # What the host mounts later is seen, and what is mounted here the host does not see.
    assert private == ("mount", "", "/", "", syscalls.MS_REC | syscalls.MS_SLAVE, "")
    assert binds == [
        *(("bind", path, path, True) for path in shared_paths(tmp_path)),
        ("bind", str(tmp_path / "empty"), str(tmp_path / "trash"), True),
    ]
    assert {"blobs", "bundles", "compiled", "envs", "sites"} < {Path(str(call[1])).name for call in binds}
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir() if path.name != "lower"}
    assert modes.pop("empty") == 0o500
    assert set(modes.values()) == {0o700}
    assert os.getcwd() == "/"
    kernel.calls.clear()
    with found.outside():
        pass
    (_, home, kind), (_, shared, other) = kernel.calls
    assert home != shared
    assert kind == other == NEW
    assert own(home) == own(shared) == os.readlink("/proc/self/ns/mnt")
    open_views(tmp_path)  # where the directories are already


class TestViews:
    @pytest.fixture
    def opened(self, kernel: Kernel, tmp_path: Path) -> views.TaskViews:
        found = open_views(tmp_path, most_kept=2)
        kernel.calls.clear()
        return found

    def test_an_attempt_sees_its_mounts_in_order(self, kernel: Kernel, opened: views.TaskViews, tmp_path: Path) -> None:
        layer = tmp_path / "a:b,c\\d"
        bundle = Mount("/bundle", "/bund:le", str(layer), "/compiled,1")
        opened.enter([bundle, Mount("/env", "/env"), Mount("/copied", "/copy")])
        escaped = f"{tmp_path}/a\\:b\\,c\\\\d"
        directories = f"lowerdir=/compiled\\,1:/bund\\:le,upperdir={escaped},workdir={escaped}.work"
        assert kernel.calls == [
            ("unshare", NEW),
            ("mount", "overlay", "/bundle", "overlay", 0, f"{directories},redirect_dir=on,volatile"),
            ("bind", "/env", "/env", True),
            ("bind", "/copy", "/copied", False),
        ]
        assert layer.is_dir()
        kernel.calls.clear()
        opened.leave()
        ((name, _, kind),) = kernel.calls
        assert (name, kind) == ("setns", NEW)

    def test_the_way_back_is_taken_whatever_happens_outside(self, kernel: Kernel, opened: views.TaskViews) -> None:
        with pytest.raises(KeyError), opened.outside():
            raise KeyError("tool")
        assert kernel.taken() == ["setns", "setns"]

    @pytest.mark.parametrize("is_refused", [False, True])
    def test_a_namespace_is_made_and_left(self, kernel: Kernel, opened: views.TaskViews, is_refused: bool) -> None:
        if is_refused:
            kernel.refused = {"bind"}
            with pytest.raises(ViewFailed, match="the host cannot mount the task's files: no bind") as failed:
                opened.namespace([Mount("/env", "/env")])
            assert failed.value.errno == errno.EPERM
        else:
            assert own(opened.namespace([Mount("/env", "/env")])).startswith("mnt:")
        assert kernel.taken() == ["unshare", "bind", "setns"]

    def test_mounts_are_kept_for_the_next_one(self, kernel: Kernel, opened: views.TaskViews, tmp_path: Path) -> None:
        lower, layer, work = (tmp_path / name for name in ("lower", "layer", "layer.work"))
        mounts = [Mount(str(lower), str(lower), str(layer))]

        def calls() -> list[object]:
            opened.enter(mounts)
            opened.leave()
            return kernel.taken()

        made, kept = ["unshare", "mount", "unshare", "setns"], ["setns", "unshare", "setns"]
        assert [calls(), calls()] == [made, kept], "in a copy: what a task mounts is its own"
        lower.rename(tmp_path / "former")
        lower.mkdir()
        assert calls() == ["unshare", "mount", "setns"], "another bundle, and the layer has its own mount"
        layer.rename(tmp_path / "written")
        work.rename(tmp_path / "written.work")
        assert [calls(), calls()] == [made, kept]
        layer.rename(tmp_path / "again")
        work.rename(tmp_path / "again.work")
        layer.mkdir()
        assert calls() == made, "another layer at its place"

    def test_without_a_descriptor_to_keep_them_by_its_mounts_are_the_attempts_alone(
        self, kernel: Kernel, opened: views.TaskViews, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def scarce(*_: object) -> int:
            raise OSError(errno.EMFILE, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", scarce)
            opened.enter([Mount("/t", str(tmp_path / "lower"), str(tmp_path / "layer"))])
        assert kernel.taken() == ["unshare", "mount"]
        assert not opened.drop_unused()

    def test_what_is_not_used_for_a_while_is_let_go(self, opened: views.TaskViews, tmp_path: Path) -> None:
        def use(number: int) -> None:
            opened.enter([Mount("/t", str(tmp_path / "lower"), str(tmp_path / f"layer{number}"))])
            opened.leave()

        def count() -> int:
            return len(os.listdir("/proc/self/fd"))

        before = count()
        for number in range(3):
            use(number)
        assert count() == before + 2, "no more than are of use"
        assert opened.drop_unused(), "both were used since the last look"
        use(1)
        assert opened.drop_unused()
        assert count() == before + 1
        assert not opened.drop_unused()
        assert count() == before

    def test_only_a_helper_of_an_ordinary_user_may_enter_them(self, kernel: Kernel, opened: views.TaskViews) -> None:
        with opened.may_enter_namespaces():
            assert kernel.calls == [], "root needs no capabilities passed on"
        opened.in_user_namespace = True
        with pytest.raises(OSError, match="no start"), opened.may_enter_namespaces():
            raise OSError("no start")
        raised = ("raise_ambient", (syscalls.CAP_SYS_ADMIN, syscalls.CAP_SYS_CHROOT))
        assert kernel.calls == [raised, ("clear_ambient",)]
        none = no_views()
        none.in_user_namespace = True
        with none.outside(), none.may_enter_namespaces():
            pass
        assert len(kernel.calls) == 2, "where nothing can be mounted no namespace is touched"


@pytest.mark.parametrize("has_own", [True, False])
def test_caches_and_the_workers_own_are_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_own: bool) -> None:
    for name in ("envs", "blobs", "venv/iris", "venv2", "site"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv") if has_own else sys.base_prefix)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "site") if "lib" in name else "")
    monkeypatch.setattr(sys.modules["iris"], "__path__", [str(tmp_path / "venv" / "iris")] if has_own else [])
    monkeypatch.setattr(sys.modules["rigging"], "__path__", [str(tmp_path / "venv2")])
    if not has_own:
        monkeypatch.delitem(sys.modules, "rigging")
    names = [os.path.relpath(path, tmp_path) for path in shared_paths(tmp_path)]
    # What is inside of another is so already; a system's Python has only its packages.
    assert names == ["blobs", "envs", *(("venv", "venv2") if has_own else ("site",))]
