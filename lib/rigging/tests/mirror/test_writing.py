import contextlib
import errno
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rigging.errors import InvalidRequest
from rigging.filesystem import atomic_write, read_bytes_or_none, write_bytes_atomic
from rigging.prefixes.paths import PRIVATE_DIRECTORY

# The conftest.py gives what runs on S3 pytest.mark.process.

STORES = ("local", "memory", "gcs", "s3", "disk")


@pytest.fixture(params=STORES)
def regions(request: pytest.FixtureRequest, make_regions: Any) -> Any:
    made = make_regions(request.param, "local")
    made.put(1, "d/there", b"there")
    yield made
    assert made.files(1) == ["d/there"]
    assert made.has(1, "d/there") == b"there", "other regions are never written"


def data_files(regions: Any) -> list[str]:
    return [path for path in regions.files(0) if not path.startswith(PRIVATE_DIRECTORY)]


def test_writes_go_to_the_local_prefix(regions: Any):
    fs = regions.fs
    with fs.open("new/deep/file", "wb") as stream:
        stream.write(b"1")
    fs.pipe_file("new/piped", b"2")
    fs.touch("new/touched")
    with fs.open("d/there", "wb") as stream:
        stream.write(b"mine")
    assert {path: regions.has(0, path) for path in regions.files(0)} == {
        "new/deep/file": b"1",
        "new/piped": b"2",
        "new/touched": b"",
        "d/there": b"mine",
    }
    assert fs.cat_file("d/there") == b"mine"


def test_what_is_marked_as_changed_keeps_its_content_and_else_is_emptied(regions: Any):
    with contextlib.suppress(NotImplementedError, ValueError):  # objects have no time that could be set
        regions.fs.touch("d/there", truncate=False)
    assert regions.has(0, "d/there") == b"there", "it was brought first"
    regions.fs.touch("d/there")
    assert regions.has(0, "d/there") == b""


def test_exclusive_creation_looks_at_all_regions(regions: Any):
    with pytest.raises(FileExistsError, match="this or another region"):
        regions.fs.open("d/there", "xb")
    with pytest.raises(FileExistsError, match="this or another region"):
        regions.fs.pipe_file("d/there", b"", mode="create")
    with regions.fs.open("d/new", "xb") as stream:
        stream.write(b"x")
    assert regions.has(0, "d/new") == b"x"


def test_a_plain_file_is_put_here_and_creating_it_looks_at_all_regions(regions: Any, tmp_path: Path):
    (tmp_path / "plain").write_bytes(b"plain")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileExistsError, match="this or another region"):
        regions.fs.put_file(str(tmp_path / "plain"), "d/there", mode="create")
    regions.fs.put_file(str(tmp_path / "plain"), "d/new", mode="create")
    regions.fs.put_file(str(tmp_path / "plain"), "d/there")
    regions.fs.put_file(str(tmp_path / "folder"), "d/folder")
    assert regions.files(0) == ["d/new", "d/there"]
    assert regions.has(0, "d/new") == regions.has(0, "d/there") == b"plain"


def test_directories_are_made_and_removed_here_where_there_are_such(regions: Any):
    fs = regions.fs
    for make in (fs.mkdir, fs.makedirs):
        with pytest.raises(FileExistsError, match="this or another region"):
            make("d")
    fs.makedirs("d", exist_ok=True)
    fs.mkdir("e/f")
    fs.makedirs("e/g")
    has_directories = not regions.prefixes[0].startswith(("gs:", "s3:"))
    assert [fs.isdir(path) for path in ("e/f", "e/g")] == [has_directories] * 2
    for path in ("e/f", "e/g", "e"):
        fs.rmdir(path)
    assert not fs.exists("e")


def test_moving_and_copying_bring_the_file_first(regions: Any):
    fs = regions.fs
    fs.cp_file("d/there", "d/copy")
    fs.mv("d/there", "e/moved")
    assert data_files(regions) == ["d/copy", "e/moved"]
    assert regions.has(0, "d/copy") == regions.has(0, "e/moved") == b"there"
    fs.mv("e/moved", "f/again")
    fs.mv("f", "g", recursive=True)
    assert data_files(regions) == ["d/copy", "g/again"]
    fs.mv(["d/copy", "g/again"], ["e/1", "e/2"])
    assert {path: regions.has(0, path) for path in data_files(regions)} == {"e/1": b"there", "e/2": b"there"}


def test_what_is_only_here_is_removed_without_a_trace(regions: Any):
    fs = regions.fs
    fs.pipe_file("d/c", b"")
    fs.rm_file("d/c")
    with pytest.raises(FileNotFoundError, match="no region has it"):
        fs.rm("d/no*")
    fs.pipe({"d/a1": b"", "d/a2": b"", "d/b": b""})
    fs.rm("d/a*")
    assert regions.files(0) == ["d/b"]
    with pytest.raises(InvalidRequest, match="whole prefix"):
        fs.rm("", recursive=True)


def test_atomic_writes_work_through_the_mirror(regions: Any):
    write_bytes_atomic("mirror://d/there", b"whole")
    assert regions.has(0, "d/there") == b"whole"
    with atomic_write("mirror://w/x", "w") as stream:
        stream.write("text")
    assert read_bytes_or_none("mirror://w/x") == b"text"
    assert regions.files(0) == ["d/there", "w/x"]


@pytest.mark.parametrize("store", ["local", "memory"])
def test_appending_brings_the_file_first_and_a_transaction_publishes_at_its_end(make_regions: Any, store):
    regions = make_regions(store, "local")
    regions.put(1, "d/there", b"there")
    with regions.fs.open("d/there", "ab") as stream:
        stream.write(b" and here")
    assert regions.has(0, "d/there") == b"there and here"
    assert regions.has(1, "d/there") == b"there"
    with regions.fs.transaction:
        with regions.fs.open("d/x", "wb") as stream:
            stream.write(b"x")
        assert store == "memory" or regions.has(0, "d/x") is None
    assert regions.has(0, "d/x") == b"x"


def test_a_move_to_the_same_place_does_nothing(regions: Any) -> None:
    regions.fs.pipe({"ckpt/x": b"1", "y": b"2"})
    regions.fs.mv("ckpt", "ckpt/", recursive=True)
    regions.fs.mv("y", "mirror://y")
    assert (regions.fs.cat("ckpt/x"), regions.fs.cat("y")) == (b"1", b"2")
    with pytest.raises(InvalidRequest, match="cannot be moved"):
        regions.fs.mv(["y", "ckpt/x"], ["z", "ckpt/x"])
    assert (regions.fs.cat("ckpt/x"), regions.fs.cat("y")) == (b"1", b"2")


@pytest.mark.parametrize("target", ["ckpt/old", "ckpt/old/"])
def test_a_directory_is_not_moved_into_itself(regions: Any, target: str) -> None:
    regions.fs.pipe({"ckpt/x": b"1", "ckpt/y": b"2"})
    with pytest.raises(InvalidRequest, match="mirror://ckpt cannot be moved to ckpt"):
        regions.fs.mv("ckpt", target, recursive=True)
    assert regions.fs.find("ckpt") == ["ckpt/x", "ckpt/y"]


def test_what_a_pattern_matches_is_moved_and_not_what_it_matches_then(regions: Any) -> None:
    regions.fs.pipe({"e/x": b"1", "e/y": b"2"})
    regions.fs.mv("e/*", "e/sub/", recursive=True)
    assert {path: regions.fs.cat(path) for path in regions.fs.find("e")} == {"e/sub/x": b"1", "e/sub/y": b"2"}


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file grows beyond 50 bytes: a write ends in the middle, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("how", ["pipe", "put", "cp", "open", "open text", "transaction", "raised"])
def test_a_write_that_fails_leaves_what_was_seen(make_regions: Any, how: str, tmp_path: Path) -> None:
    regions = make_regions("local", "local")
    regions.put(1, "d/name", b"good")
    regions.fs.pipe("big", b"x" * 100)
    (tmp_path / "big").write_bytes(b"x" * 100)

    def write(mode: str, content: Any, *, within: Any = None, error: str = "") -> None:
        with within or contextlib.nullcontext(), regions.fs.open("d/name", mode) as out:
            out.write(content)
            if error:
                raise OSError(errno.EFBIG, error)

    calls = {
        "pipe": lambda: regions.fs.pipe("d/name", b"n" * 100),
        "put": lambda: regions.fs.put_file(str(tmp_path / "big"), "d/name"),
        "cp": lambda: regions.fs.cp_file("big", "d/name"),
        "open": lambda: write("wb", b"n" * 100),
        "open text": lambda: write("w", "n" * 100),
        "transaction": lambda: write("wb", b"n" * 100, within=regions.fs.transaction),
        "raised": lambda: write("wb", b"n", error="File too large, says the caller"),
    }
    with full_disk(), pytest.raises(OSError, match="File too large"):
        calls[how]()
    assert regions.fs.find("d") == ["d/name"]
    assert regions.fs.cat("d/name") == b"good"
    assert not list(Path(regions.prefixes[0]).rglob(".marin-tmp-*"))


def test_a_file_has_its_name_once_it_is_closed_or_its_transaction_ends(make_regions: Any) -> None:
    regions = make_regions("local", "local")
    regions.put(1, "d/name", b"old")
    with regions.fs.open("d/name", "wb") as out:
        out.write(b"new")
        assert regions.fs.cat("d/name") == b"old"
    assert regions.fs.cat("d/name") == b"new"
    with regions.fs.transaction:
        with regions.fs.open("d/name", "wb") as out:
            out.write(b"newer")
        assert regions.fs.cat("d/name") == b"new"
    assert regions.fs.cat("d/name") == b"newer"
