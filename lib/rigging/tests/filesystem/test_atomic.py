import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rigging.errors import InvalidRequest
from rigging.filesystem import atomic, atomic_write, filesystem, read_bytes_or_none, write_bytes_atomic
from support.rigging.power_loss import LossyDisk


@pytest.fixture(params=["local", "file", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"local": str(tmp_path), "file": f"file://{tmp_path}", "memory": f"memory://{tmp_path.name}"}[request.param]


def test_what_is_written_is_there_whole_or_not_at_all(root: str, tmp_path: Path) -> None:
    def write_half(url: str) -> None:
        with atomic_write(url) as handle:
            handle.write(b"half")
            raise ZeroDivisionError

    url = f"{root}/deep/er/status"
    assert read_bytes_or_none(url) is None
    write_bytes_atomic(url, b"", durable=True)
    assert read_bytes_or_none(url) == b""
    write_bytes_atomic(url, b"old")
    with atomic_write(url, "w") as handle:
        handle.write("né\nw")
        assert read_bytes_or_none(url) == b"old"
    assert read_bytes_or_none(url) == "né\nw".encode()
    with pytest.raises(ZeroDivisionError):
        write_half(url)
    assert read_bytes_or_none(url) == "né\nw".encode()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] in ([], ["status"])


def test_large_stream_to_another_filesystem() -> None:
    large = bytes(16 * 2**20 + 1)
    with atomic_write("memory://atomic/large") as handle:
        handle.write(large)
    assert read_bytes_or_none("memory://atomic/large") == large
    filesystem("memory").rm_file("/atomic/large")


class OtherFileSystem(MemoryFileSystem):
    """A filesystem whose puts are not known to be atomic."""

    protocol = "other"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return MemoryFileSystem._strip_protocol(str(path).replace("other://", "memory://", 1))


fsspec.register_implementation("other", OtherFileSystem)


@pytest.mark.parametrize("name", ["atomic", "in a new/directory"])
def test_file_permissions_follow_the_umask(name: str, tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    write_bytes_atomic(tmp_path / name, b"")
    assert (tmp_path / name).stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o660, 0o444])
def test_a_replaced_file_keeps_its_mode_and_owner(mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.touch()
    path.chmod(mode)
    owner = (path.stat().st_uid, path.stat().st_gid)
    write_bytes_atomic(path, b"1")
    assert path.stat().st_mode & 0o777 == mode
    with atomic_write(path) as stream:
        stream.write(b"2")
        stream.flush()
        others = [entry.stat().st_mode & 0o077 for entry in tmp_path.iterdir() if entry != path]
        assert others == [0], "private until then"
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"2", mode)
    given: list[tuple[int, int]] = []
    real = os.stat_result((*path.stat()[:4], 4242, 4343, *path.stat()[6:]))
    monkeypatch.setattr(os, "stat", lambda *_args, **_options: real)
    monkeypatch.setattr(os, "fchown", lambda _descriptor, uid, gid: given.append((uid, gid)))
    write_bytes_atomic(path, b"3")
    assert owner != (4242, 4343)
    assert given == [(4242, 4343)]


def test_a_directory_that_another_makes_at_that_moment_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of one run write their first files below the same new directory, from many machines."""
    open_file, tried = os.open, []

    def late(path: str, *arguments: int) -> int:
        if not tried:
            tried.append(path)
            (tmp_path / "new").mkdir()
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return open_file(path, *arguments)

    monkeypatch.setattr(os, "open", late)
    write_bytes_atomic(tmp_path / "new/x", b"1")
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["x"]


def test_below_a_file_there_is_nothing_and_a_directory_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert read_bytes_or_none(tmp_path / "file" / "x") is None
    with pytest.raises(IsADirectoryError):
        read_bytes_or_none(tmp_path)
    with pytest.raises(IsADirectoryError):
        write_bytes_atomic(tmp_path, b"")
    assert [p.name for p in tmp_path.iterdir()] == ["file"], "the temporary file was left behind"


def test_a_kernel_that_takes_a_part_only_is_given_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux takes at most 2 GiB in one write, and less when a disk is nearly full."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data)[:3]))
    write_bytes_atomic(tmp_path / "x", b"0123456789")
    assert (tmp_path / "x").read_bytes() == b"0123456789"


def write_stream(url: Path, content: bytes, **options: bool) -> None:
    with atomic_write(url, **options) as handle:
        handle.write(content)


Write = Callable[..., None]
WRITES = pytest.mark.parametrize("write", [write_bytes_atomic, write_stream], ids=["bytes", "stream"])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LossyDisk]:
    """Of the directory `disk`, in which `here` is "old"."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/here").write_bytes(b"old")
    disk = LossyDisk(tmp_path / "disk")
    with disk.recording():
        yield disk
    disk.close()


@WRITES
@pytest.mark.parametrize("names_survive", [False, True])
def test_durable_writes_survive_power_loss(write: Write, names_survive: bool, disk: LossyDisk, tmp_path: Path) -> None:
    write(tmp_path / "disk/here", b"new", durable=True)
    write(tmp_path / "disk/made/for/it", b"new", durable=True)
    left = disk.after_power_loss(tmp_path / "left", names_survive=names_survive)
    assert (left / "here").read_bytes() == b"new"
    assert (left / "made/for/it").read_bytes() == b"new"


@WRITES
@pytest.mark.parametrize("said", [{"durable": False}, {}])
def test_other_writes_do_not_wait(write: Write, said: dict[str, bool], disk: LossyDisk, tmp_path: Path) -> None:
    write(tmp_path / "disk/here", b"new", **said)
    assert (tmp_path / "disk/here").read_bytes() == b"new"
    left = disk.after_power_loss(tmp_path / "left", names_survive=False)
    assert (left / "here").read_bytes() == b"old"


def test_a_full_disk_names_the_file_and_other_errors_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(_descriptor: int, _data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as the kernel says it: without a path

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match=r"No space left on device: '.*/status'") as caught:
        write_bytes_atomic(f"{tmp_path}/status", b"x")
    assert caught.value.errno == errno.ENOSPC
    for number, named in ((errno.ENOSPC, f"{tmp_path}/big"), (errno.ECONNRESET, None)):
        with pytest.raises(OSError, match=os.strerror(number)) as caught, atomic_write(f"{tmp_path}/big"):
            raise OSError(number, os.strerror(number))
        assert caught.value.filename == named
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidRequest, match="mode 'a'"), atomic_write(tmp_path / "x", "a"):
        pass
    with pytest.raises(OSError, match="'/sys/status'"):  # where root may not write either
        write_bytes_atomic("/sys/status", b"x")


@pytest.mark.parametrize("method", ["cat_file", "pipe_file"])
def test_a_store_that_says_only_forbidden_is_given_the_path(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("Forbidden")  # as s3fs says it

    monkeypatch.setattr(type(filesystem("memory")), method, refuse)
    use: dict[str, Any] = {"cat_file": read_bytes_or_none, "pipe_file": lambda url: write_bytes_atomic(url, b"")}
    with pytest.raises(PermissionError, match="Forbidden: 'memory://bucket/dir/x'"):
        use[method]("memory://bucket/dir/x")


def test_a_directory_without_fsync_is_no_error_a_bad_disk_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = errno.EINVAL

    def fail(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fsync", fail)
    atomic.sync_names(tmp_path / "x")
    number = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        atomic.sync_names(tmp_path / "x")
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("whole_puts", [True, False])
def test_a_refusal_is_named_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, whole_puts: bool) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    scheme = "memory" if whole_puts else "other"
    fs = filesystem(scheme)
    fs.makedirs("/atomic-refused", exist_ok=True)
    monkeypatch.setattr(type(fs), "pipe_file" if whole_puts else "mv", refuse)
    with pytest.raises(OSError, match=f"{scheme}://atomic-refused/a"):
        write_bytes_atomic(f"{scheme}://atomic-refused/a", b"1")
    assert fs.ls("/atomic-refused", detail=False) == []
    monkeypatch.undo()
    write_bytes_atomic(f"{scheme}://atomic-refused/a", b"1")
    assert fs.ls("/atomic-refused", detail=False) == ["/atomic-refused/a"]
    assert fs.cat_file("/atomic-refused/a") == b"1"
    fs.rm_file("/atomic-refused/a")
