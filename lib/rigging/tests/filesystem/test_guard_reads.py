"""Every kind of read, over real gcsfs: what it costs, that it is refused in time, that it is free at home."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rigging.filesystem import TransferBudget, TransferBudgetExceeded, mirror_budget
from rigging.filesystem.budget import GB
from support.rigging.gcs_server import GcsServer

SIZE = 3000


READS: dict[str, tuple[Callable[[Any, str, Path], Any], int]] = {
    "open": (lambda fs, p, tmp: fs.open(p).read(), SIZE),
    "open text": (lambda fs, p, tmp: fs.open(p, "r", encoding="latin-1", newline="").read(), SIZE),
    "read_bytes": (lambda fs, p, tmp: fs.read_bytes(p), SIZE),
    "read_text": (lambda fs, p, tmp: fs.read_text(p, encoding="latin-1", newline=""), SIZE),
    "read_block": (lambda fs, p, tmp: fs.read_block(p, 0, SIZE), SIZE),
    "cat": (lambda fs, p, tmp: fs.cat(p), SIZE),
    "cat of a glob": (lambda fs, p, tmp: fs.cat(p[:-1] + "[ab]"), 2 * SIZE),
    "cat of a directory": (lambda fs, p, tmp: fs.cat(p[:-2], recursive=True, on_error="omit"), 2 * SIZE),
    "cat_file": (lambda fs, p, tmp: fs.cat_file(p), SIZE),
    "cat_file range": (lambda fs, p, tmp: fs.cat_file(p, 10, 110), 100),
    "cat_file past the end": (lambda fs, p, tmp: fs.cat_file(p, 2990, 5000), 10),
    "cat_ranges": (lambda fs, p, tmp: fs.cat_ranges([p, p], [0, 50], [20, 80]), 50),
    "head": (lambda fs, p, tmp: fs.head(p, 33), 33),
    "tail": (lambda fs, p, tmp: fs.tail(p, 44), 44),
    "get": (lambda fs, p, tmp: fs.get(p, str(tmp / "x")), SIZE),
    "get of a list": (lambda fs, p, tmp: fs.get([p], [str(tmp / "x")]), SIZE),
    "get of a directory": (lambda fs, p, tmp: fs.get(p[:-2], str(tmp / "d"), recursive=True), 2 * SIZE),
    "get_file": (lambda fs, p, tmp: fs.get_file(p, str(tmp / "x")), SIZE),
    "download": (lambda fs, p, tmp: fs.download(p, str(tmp / "x")), SIZE),
    "get_mapper": (lambda fs, p, tmp: fs.get_mapper(p[:-2])["a"], SIZE),
    **{
        name: (lambda fs, p, tmp, name=name: getattr(fs, name)(p, to_here(p)), SIZE)
        for name in ("copy", "cp", "cp_file", "mv", "move", "rename", "mv_file")
    },
    "async cat_file": (lambda fs, p, tmp: in_its_loop(fs, lambda: fs._cat_file(p)), SIZE),
    "async range": (lambda fs, p, tmp: in_its_loop(fs, lambda: fs._cat_file(p, start=-9)), 9),
    "async cat": (lambda fs, p, tmp: in_its_loop(fs, lambda: fs._cat([p])), SIZE),
    "async cat_ranges": (lambda fs, p, tmp: in_its_loop(fs, lambda: fs._cat_ranges([p], [0], [20])), 20),
    "async get": (lambda fs, p, tmp: in_its_loop(fs, lambda: fs._get(p, str(tmp / "x"))), SIZE),
    "async get_file": (lambda fs, p, tmp: in_its_loop(fs, lambda: fs._get_file(p, str(tmp / "x"))), SIZE),
    "async copy": (lambda fs, p, tmp: in_its_loop(fs, lambda: fs._copy(p, "marin-us-central2/copied")), SIZE),
    "async mv_file": (lambda fs, p, tmp: in_its_loop(fs, lambda: fs._mv_file(p, "marin-us-central2/moved")), SIZE),
    "async cp_file": (lambda fs, p, tmp: in_its_loop(fs, lambda: fs._cp_file(p, "marin-us-central2/copied")), SIZE),
}


def in_its_loop(fs: Any, made: Callable[[], Any]) -> Any:
    """Await in fsspec's loop, with the budget of here, as a library that speaks async does."""

    async def awaited() -> Any:
        return await made()

    # The callback, and with it the task, has the context of the thread that asks for it.
    return asyncio.run_coroutine_threadsafe(awaited(), fs.loop).result(60)


MOVES = ("mv", "move", "rename", "mv_file", "async mv_file")


def to_here(path: str) -> str:
    return path.replace("eu-west4", "us-central2") + "-copy"


@pytest.mark.parametrize("name", READS)
def test_a_read_costs_what_it_brings(name: str, fs: Any, away: str, budget: TransferBudget, tmp_path: Path) -> None:
    read, bytes_moved = READS[name]
    found = read(fs, f"{away}/a", tmp_path)
    assert budget.bytes_used == bytes_moved
    if name not in MOVES:
        assert found == read(fs.unguarded, f"{away}/a", tmp_path), "the guard changes nothing but the cost"


@pytest.mark.parametrize("name", READS)
def test_a_read_is_refused_in_time(name: str, fs: Any, away: str, gcs_server: GcsServer, tmp_path: Path) -> None:
    read, _ = READS[name]
    with mirror_budget(1 / GB) as budget:
        gcs_server.reset_traffic()
        with pytest.raises(TransferBudgetExceeded, match="gs://marin-eu-west4/"):
            read(fs, f"{away}/a", tmp_path)
        assert budget.bytes_used == 0
    traffic = gcs_server.traffic()
    assert "marin-eu-west4" not in traffic or traffic["marin-eu-west4"].bytes_out == 0
    assert "marin-us-central2" not in traffic, "nor was anything written"
    assert list(tmp_path.rglob("?")) == []


WHOLE_MODES = ["ab", "a+b", "r+b", "w+b", "x+b"]


@pytest.fixture
def opened(fs: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Modes in which files were opened below the guard, where nothing is really opened: GCS has not all of them."""
    modes: list[str] = []
    monkeypatch.setattr(fs.unguarded, "open", lambda path, mode, **options: modes.append(mode))
    return modes


@pytest.mark.parametrize("mode", [*WHOLE_MODES, "wb", "xb"])
def test_a_mode_that_may_read_what_is_there_costs_all_of_it_at_once(
    mode: str, fs: Any, away: str, here: str, budget: TransferBudget, opened: list[str]
) -> None:
    """Appending and updating read behind the guard's back; a file that is not there costs nothing."""
    fs.open(f"{here}/a", mode)
    if "r" in mode:
        with pytest.raises(FileNotFoundError):
            fs.open(f"{away}/none", mode)
    else:
        fs.open(f"{away}/none", mode)
    assert budget.bytes_used == 0
    opened.clear()
    fs.open(f"{away}/a", mode)
    assert (budget.bytes_used, opened) == (SIZE if mode in WHOLE_MODES else 0, [mode])
    if mode in WHOLE_MODES:
        with mirror_budget(1 / GB), pytest.raises(TransferBudgetExceeded):
            fs.open(f"{away}/a", mode)
        assert opened == [mode], "refused before it was opened"
