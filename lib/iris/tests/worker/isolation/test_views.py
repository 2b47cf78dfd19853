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
    caplog.set_level(logging.INFO, views.__name__)
    return Kernel(monkeypatch)


def own(descriptor: object) -> str:
    assert isinstance(descriptor, int)
    assert not os.get_inheritable(descriptor)
    return os.readlink(f"/proc/self/fd/{descriptor}")


class TestAbility:
    """What is used is what was seen to work, and the log says why it is nothing better."""

    @pytest.mark.parametrize(
        ("refused", "flaws", "mode", "options", "said"),
        [
            ((), (), OVERLAY, ",redirect_dir=on,volatile", ()),
            (("volatile",), (), OVERLAY, ",redirect_dir=on", ("volatile': [Errno 22] no volatile",)),
            (("redirect_dir",), (), OVERLAY, "", ("redirect_dir=on': [Errno 22] no redirect_dir",)),
            (("lowerdir",), (), BIND, "", ("no overlay with options '': [Errno 22] no lowerdir",)),
            ((), ("shared",), BIND, "", ("what a task changes reaches the shared directory",)),
            ((), ("shared file",), BIND, "", ("what a task changes reaches the shared directory",)),
            ((), ("shared folder",), BIND, "", ("what a task changes reaches the shared directory",)),
            ((), ("kept",), BIND, "", ("what a task changes does not stay changed",)),
            ((), ("there",), BIND, "", ("what a task changes does not stay changed",)),
            ((), ("filled",), BIND, "", ("what a task changes does not stay changed",)),
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
        assert f"tasks are isolated by {mode}" in caplog.text
        assert ("(" in caplog.messages[-1]) == bool(said)
        assert all(reason in caplog.text for reason in said)
        assert not [name for name in os.listdir(tmp_path) if name.startswith(".probe")], "nothing is left of the tries"
        if mode is OVERLAY:
            kernel.refused.clear()
            found.enter([Mount("/t", "/s", str(tmp_path / "layer"))])
            assert str(kernel.calls[-1][-1]).endswith(f"/layer.work{options}")

    def test_nothing_better_is_tried_than_is_wanted(
        self, kernel: Kernel, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert open_views(tmp_path, BIND).mode is BIND
        assert "overlay" not in caplog.text
        kernel.calls.clear()
        assert open_views(tmp_path, COPY).mode is COPY
        assert "tasks are isolated by copy (nothing better is wanted)" in caplog.text
        assert kernel.calls == []

    def test_a_try_changes_no_namespace_but_its_own(self, kernel: Kernel, tmp_path: Path) -> None:
        kernel.refused = {"lowerdir", "bind"}
        open_views(tmp_path)
        assert kernel.calls == [], "each was made in a fork"


def test_what_is_shared_is_read_only_and_the_trash_hidden_behind_the_former_namespace(
    kernel: Kernel, tmp_path: Path
) -> None:
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
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
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
        found = open_views(tmp_path)
        kernel.calls.clear()
        return found

    def test_an_attempt_sees_its_mounts_in_their_order(
        self, kernel: Kernel, opened: views.TaskViews, tmp_path: Path
    ) -> None:
        layer = tmp_path / "a:b,c\\d"
        opened.enter(
            [
                Mount("/bundle", "/bund:le", str(layer), "/compiled,1"),
                Mount("/env", "/env"),
                Mount("/copied", "/copy"),
            ]
        )
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

    def test_a_refused_mount_is_the_hosts_failure(self, kernel: Kernel, opened: views.TaskViews) -> None:
        kernel.refused = {"bind"}
        with pytest.raises(ViewFailed, match="the host cannot show the task its files: no bind") as failed:
            opened.enter([Mount("/env", "/env")])
        assert failed.value.errno == errno.EPERM

    def test_the_way_back_is_taken_whatever_happens_outside(self, kernel: Kernel, opened: views.TaskViews) -> None:
        def break_off() -> None:
            with opened.outside():
                raise KeyError("tool")

        with pytest.raises(KeyError):
            break_off()
        assert [call[0] for call in kernel.calls] == ["setns", "setns"]

    @pytest.mark.parametrize("refused", [(), ("bind",)])
    def test_a_namespace_is_made_and_left(
        self, kernel: Kernel, opened: views.TaskViews, refused: tuple[str, ...]
    ) -> None:
        kernel.refused = {*refused}
        if refused:
            with pytest.raises(ViewFailed):
                opened.namespace([Mount("/env", "/env")])
        else:
            assert own(opened.namespace([Mount("/env", "/env")])).startswith("mnt:")
        assert [call[0] for call in kernel.calls] == ["unshare", "bind", "setns"]

    def test_what_is_mounted_is_kept_for_the_next_attempt_with_the_same_mounts(
        self, kernel: Kernel, opened: views.TaskViews, tmp_path: Path
    ) -> None:
        (tmp_path / "lower").mkdir()
        mounts = [Mount(str(tmp_path / "lower"), str(tmp_path / "lower"), str(tmp_path / "layer"))]

        def calls() -> list[str]:
            kernel.calls.clear()
            opened.enter(mounts)
            opened.leave()
            return [str(call[0]) for call in kernel.calls]

        made, kept = ["unshare", "mount", "unshare", "setns"], ["setns", "unshare", "setns"]
        assert [calls(), calls()] == [made, kept], "in a copy: what a task mounts is its own"
        (tmp_path / "lower").rename(tmp_path / "former")
        (tmp_path / "lower").mkdir()
        assert calls() == ["unshare", "mount", "setns"], "another bundle, and the layer has its own mount"
        (tmp_path / "layer").rename(tmp_path / "written")
        (tmp_path / "layer.work").rename(tmp_path / "written.work")
        assert [calls(), calls()] == [made, kept]
        (tmp_path / "layer").rename(tmp_path / "again")
        (tmp_path / "layer.work").rename(tmp_path / "again.work")
        (tmp_path / "layer").mkdir()
        assert calls() == made, "another layer at its place"

    def test_without_a_descriptor_to_keep_them_by_its_mounts_are_the_attempts_alone(
        self, kernel: Kernel, opened: views.TaskViews, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "lower").mkdir()
        mounts = [Mount("/t", str(tmp_path / "lower"), str(tmp_path / "layer"))]

        def scarce(*_: object) -> int:
            raise OSError(errno.EMFILE, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", scarce)
            opened.enter(mounts)
        assert [call[0] for call in kernel.calls] == ["unshare", "mount"]
        assert not opened.drop_unused()

    def test_what_is_not_used_for_a_while_is_let_go(self, kernel: Kernel, tmp_path: Path) -> None:
        opened = open_views(tmp_path, most_kept=2)
        (tmp_path / "lower").mkdir()
        before = len(os.listdir("/proc/self/fd"))
        for number in range(3):
            opened.enter([Mount("/t", str(tmp_path / "lower"), str(tmp_path / f"layer{number}"))])
            opened.leave()
        assert len(os.listdir("/proc/self/fd")) == before + 2, "no more than are of use"
        assert opened.drop_unused(), "both were used since the last look"
        opened.enter([Mount("/t", str(tmp_path / "lower"), str(tmp_path / "layer1"))])
        opened.leave()
        assert opened.drop_unused()
        assert len(os.listdir("/proc/self/fd")) == before + 1
        assert not opened.drop_unused()
        assert len(os.listdir("/proc/self/fd")) == before

    def test_root_needs_no_capabilities_passed_on(self, kernel: Kernel, opened: views.TaskViews) -> None:
        with opened.may_enter_namespaces():
            pass
        assert kernel.calls == []

    def test_an_ordinary_users_helper_may_enter_namespaces_and_nothing_else_may(
        self, kernel: Kernel, opened: views.TaskViews
    ) -> None:
        opened.in_user_namespace = True

        def start_fails() -> None:
            with opened.may_enter_namespaces():
                assert kernel.calls == [("raise_ambient", (syscalls.CAP_SYS_ADMIN, syscalls.CAP_SYS_CHROOT))]
                raise OSError("no start")

        with pytest.raises(OSError, match="no start"):
            start_fails()
        assert kernel.calls[1:] == [("clear_ambient",)]


def test_where_nothing_can_be_mounted_no_namespace_is_touched(kernel: Kernel) -> None:
    found = no_views()
    found.in_user_namespace = True
    with found.outside(), found.may_enter_namespaces():
        pass
    assert kernel.calls == []


class TestSharedPaths:
    def test_the_caches_and_the_workers_own_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("envs", "blobs", "venv"):
            (tmp_path / name).mkdir()
        monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
        (tmp_path / "venv" / "iris").mkdir()
        (tmp_path / "venv2").mkdir()
        monkeypatch.setattr(sys.modules["iris"], "__path__", [str(tmp_path / "venv" / "iris")])
        monkeypatch.setattr(sys.modules["rigging"], "__path__", [str(tmp_path / "venv2")])
        names = [os.path.relpath(path, tmp_path) for path in shared_paths(tmp_path)]
        assert names == ["blobs", "envs", "venv", "venv2"], "what is inside of another is so already; what is not there"

    def test_a_systems_python_has_only_its_packages(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "site").mkdir()
        monkeypatch.setattr(sys, "prefix", sys.base_prefix)
        monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "site") if "lib" in name else "")
        monkeypatch.setattr(sys.modules["iris"], "__path__", [])
        monkeypatch.delitem(sys.modules, "rigging")
        assert shared_paths(tmp_path) == [str(tmp_path / "site")]
