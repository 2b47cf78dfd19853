from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.cli.context import CliContext
from marin.recorded.deciding.leases import CLEARABLE, LeaseState, judge
from rigging.distributed_lock import create_lock
from rigging.lease.identity import HolderState
from rigging.lease.record import Lease, StoredLease
from support.marin.recorded_runs import Done, RecordedStorage

Marin = Callable[..., Done]
NOW = 1_000_000.0
LOCK = ".executor_status.lock"


def hold(storage: RecordedStorage, name: str, holder: str, age: float) -> Path:
    storage.step(name, status="RUNNING")
    path = storage.root / name / LOCK
    path.write_bytes(Lease(holder, NOW - age).to_bytes())
    return path


def at(answer: bool | None = None) -> CliContext:
    """A context at the time NOW, with somebody there who gives an answer, or nobody."""
    return CliContext(now=lambda: NOW, ask=lambda _question: bool(answer), is_interactive=lambda: answer is not None)


@pytest.fixture
def held(storage: RecordedStorage) -> dict[str, Path]:
    damaged = hold(storage, "d-000004", "x", 0)
    damaged.write_bytes(b"{")
    (storage.root / "other.lock").write_text("a file lock of some program")
    return {
        "fresh": hold(storage, "a-000001", "elsewhere-1", 10),
        "quiet": hold(storage, "b-000002", "elsewhere-2", 600),
        "dead": hold(storage, "c-000003", "elsewhere-3", 90_000),
        "damaged": damaged,
    }


def test_leases_are_listed_with_their_holders(held: dict[str, Path], storage: RecordedStorage, marin: Marin) -> None:
    done = marin("locks", "list", context=at())
    assert done.code == 0
    assert done.out.replace(str(storage.root), "ROOT") == (
        "STATE       AGE         HOLDER       LOCK\n"
        f"held        10.0 s      elsewhere-1  ROOT/a-000001/{LOCK}\n"
        f"held        10 min 0 s  elsewhere-2  ROOT/b-000002/{LOCK}\n"
        f"stale       25 h 0 min  elsewhere-3  ROOT/c-000003/{LOCK}\n"
        f"unreadable  -           -            ROOT/d-000004/{LOCK}\n"
    )
    listed = marin("locks", "list", "--json", context=at()).json
    assert [lease["clearable"] for lease in listed] == [False, False, True, True]


def test_a_lease_whose_process_runs_here_is_alive(storage: RecordedStorage, marin: Marin) -> None:
    storage.step("a-000001", status="RUNNING")
    lock = create_lock(str(storage.root / "a-000001" / LOCK))
    assert lock.try_acquire()
    assert [lease["state"] for lease in marin("locks", "list", "--json").json] == ["alive"]
    assert marin("locks", "clear", "a", "--yes").code == 8
    lock.refresh()
    lock.release()


def test_only_what_is_stale_is_cleared_and_only_after_a_yes(held: dict[str, Path], marin: Marin) -> None:
    assert marin("locks", "clear", context=at(answer=False)).code == 130
    nobody = marin("locks", "clear", context=at())
    assert nobody.code == 3
    assert "add --yes" in nobody.err
    assert all(path.exists() for path in held.values())
    done = marin("locks", "clear", context=at(answer=True))
    assert done.code == 0
    assert {name for name, path in held.items() if path.exists()} == {"fresh", "quiet"}
    assert "2 lease(s) removed, 2 kept" in done.err


def test_force_needs_names_and_takes_those_alone(held: dict[str, Path], marin: Marin) -> None:
    assert marin("locks", "clear", "--force", "--yes", context=at()).code == 3
    left = marin("locks", "clear", "a", "--yes", "--json", context=at())
    assert (left.code, left.json["cleared"]) == (8, [])
    assert "may still run" in left.json["left"][0]["reason"]
    assert marin("locks", "clear", "a", "--force", "--yes", context=at()).code == 0
    assert {name for name, path in held.items() if not path.exists()} == {"fresh"}
    assert marin("locks", "clear", "a", "--yes", context=at()).code == 4


def test_a_lease_that_is_renewed_while_the_question_stands_is_left(held: dict[str, Path], marin: Marin) -> None:
    def renew(_question: str) -> bool:
        held["dead"].write_bytes(Lease("elsewhere-3", NOW).to_bytes())
        return True

    context = CliContext(now=lambda: NOW, ask=renew, is_interactive=lambda: True)
    done = marin("locks", "clear", "c", context=context)
    assert done.code == 8
    assert held["dead"].exists()
    assert "renewed or taken meanwhile" in done.err


@given(st.floats(-1e6, 1e6), st.sampled_from(HolderState), st.none() | st.floats(0, 1e6))
def test_a_holder_that_is_alive_is_never_clearable(age: float, holder: HolderState, storage_age: float | None) -> None:
    stored = StoredLease(Lease("x", NOW - age).to_bytes(), "1", storage_age)
    seen = judge("/p", stored, holder, NOW)
    if holder in (HolderState.ALIVE, HolderState.STOPPED) or age < 89:
        assert seen.state not in CLEARABLE or holder is HolderState.GONE
    if holder is HolderState.GONE:
        assert seen.state is LeaseState.GONE
