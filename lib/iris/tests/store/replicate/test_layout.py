import pytest

from iris.store.replicate.layout import Generation, Segment, Snapshot, listing_of, plan_restore, superfluous
from rigging.errors import NotFound


def listing(*items: Generation | Snapshot | Segment):
    return listing_of(item.name for item in items)


def test_names_are_read_back_and_strange_ones_ignored() -> None:
    items = [Generation(1, 0), Snapshot(1, 5, 100), Segment(1, 6, 9, 200)]
    strange = [
        "journal/.tmp-1", "snapshots/x.db.gz", "lease.lock", "generations/1-2-3", "snapshots/1-2", "journal/1-2-3",
    ]  # fmt: skip
    strange += ["generations/1", "snapshots/1-2-3-4.db.gz", "journal/1-2-3-4-5.gz", "other/1-2", "other/1-2-3-4"]
    found = listing_of([*strange, *(item.name for item in items)])
    assert [*found.generations, *found.snapshots, *found.segments] == items


@pytest.mark.parametrize(
    ("items", "base", "firsts", "head"),
    [
        ([Snapshot(1, 0, 10), Segment(1, 1, 5, 20), Snapshot(1, 5, 25), Segment(1, 6, 7, 30)], (1, 5), [6], 7),
        ([Snapshot(1, 5, 30), Snapshot(2, 5, 20), Generation(2, 5)], (2, 5), [], 5),
        ([Snapshot(1, 0, 10), Segment(1, 1, 5, 20), Segment(1, 7, 9, 30)], (1, 0), [1], 5),
        ([Snapshot(1, 0, 1), Segment(1, 1, 5, 2), Segment(2, 1, 8, 3), Segment(2, 9, 9, 4)], (1, 0), [1, 1, 9], 9),
    ],
    ids=["latest snapshot and what follows", "later generation", "nothing after a gap", "written again after a crash"],
)
def test_the_latest_state(
    items: list[Generation | Snapshot | Segment], base: tuple[int, int], firsts: list[int], head: int
) -> None:
    plan = plan_restore(listing(*items))
    assert (plan.snapshot.generation, plan.snapshot.sequence) == base
    assert ([item.first for item in plan.segments], plan.head) == (firsts, head)


def test_a_moment_takes_the_snapshot_and_the_segments_before_it() -> None:
    found = listing(
        Generation(1, 0), Snapshot(1, 0, 10), Segment(1, 1, 5, 20), Snapshot(1, 5, 25), Segment(1, 6, 7, 30)
    )
    plan = plan_restore(found, 24)
    assert (plan.snapshot.sequence, plan.head) == (0, 5)
    assert plan_restore(found, 19).head == 0
    assert plan_restore(found, 20).head == 5, "what was made at that moment belongs to it"
    assert plan_restore(found, 10).head == 0
    assert plan_restore(found, 25).snapshot.sequence == 5
    with pytest.raises(NotFound, match="no snapshot at or before 9 ms; the oldest is of 10 ms"):
        plan_restore(found, 9)


def test_what_a_deposed_controller_wrote_late_counts_for_nothing() -> None:
    found = listing(
        Generation(1, 0), Snapshot(1, 0, 10), Segment(1, 1, 5, 20), Segment(1, 6, 9, 50), Snapshot(1, 9, 60),
        Generation(2, 5), Segment(2, 6, 7, 40),
    )  # fmt: skip
    plan = plan_restore(found)
    assert plan.snapshot.sequence == 0
    assert [(item.generation, item.first) for item in plan.segments] == [(1, 1), (2, 6)]
    assert plan.head == 7


def test_going_back_behind_a_generation_takes_it_and_those_before_it_back() -> None:
    found = listing(
        Generation(1, 0), Snapshot(1, 0, 10), Segment(1, 1, 5, 20), Segment(1, 6, 8, 30),
        Generation(2, 8), Segment(2, 9, 9, 40), Snapshot(2, 9, 45),
        Generation(3, 5), Segment(3, 6, 6, 50),
    )  # fmt: skip
    plan = plan_restore(found)
    assert [(item.generation, item.first) for item in plan.segments] == [(1, 1), (3, 6)]
    assert (plan.snapshot.sequence, plan.head) == (0, 6)
    assert [found.end_of(number) for number in (1, 2, 3)] == [5, 5, None]
    assert found.newest_generation == 3


def test_an_empty_directory_has_no_state() -> None:
    with pytest.raises(NotFound, match="no snapshot of the state"):
        plan_restore(listing_of([]))


def test_only_what_no_restore_in_the_kept_time_needs_is_superfluous() -> None:
    found = listing(
        Snapshot(1, 0, 10), Segment(1, 1, 5, 20), Snapshot(1, 5, 25), Segment(1, 6, 7, 30), Snapshot(1, 7, 50),
    )  # fmt: skip
    assert superfluous(found, 9) == []
    assert superfluous(found, 24) == []
    assert superfluous(found, 25) == superfluous(found, 30)
    assert superfluous(found, 50) == [item.name for item in (*found.snapshots[:2], *found.segments)]
    assert superfluous(found, 30) == [Snapshot(1, 0, 10).name, Segment(1, 1, 5, 20).name]
    for at_ms in (30, 40, 60):
        kept = listing_of({*map(_name, [*found.snapshots, *found.segments])} - set(superfluous(found, 30)))
        assert plan_restore(kept, at_ms) == plan_restore(found, at_ms)


def test_what_a_deposed_controller_wrote_late_makes_nothing_superfluous() -> None:
    found = listing(
        Generation(1, 0), Snapshot(1, 0, 10), Segment(1, 1, 5, 20), Generation(2, 5), Segment(2, 6, 7, 40),
        Snapshot(1, 9, 30),
    )  # fmt: skip
    assert superfluous(found, 50) == []


def _name(item: Snapshot | Segment) -> str:
    return item.name
