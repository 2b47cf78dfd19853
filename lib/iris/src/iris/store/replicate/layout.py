"""Object names in the remote state directory, and the choice of objects for the state at a given time. Pure.

    generations/<generation>-<base>           one controller's term: its commits come after `base`
    snapshots/<generation>-<sequence>-<at_ms>.db.gz     the database with all commits up to `sequence`
    journal/<generation>-<first>-<last>-<at_ms>.gz the commits first..last, the last committed at `at_ms`

Numbers have 16 digits, so names sort by number. A generation is the fencing number of the controller's lease. Commits
that a controller writes after another has taken over are beyond the base of the next generation, and are ignored.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rigging.errors import NotFound


@dataclass(frozen=True, slots=True, order=True)
class Generation:
    """One controller's term. Its commits follow number `base`."""

    number: int
    base: int

    @property
    def name(self) -> str:
        return f"generations/{self.number:016d}-{self.base:016d}"


@dataclass(frozen=True, slots=True, order=True)
class Snapshot:
    """The database with all commits up to `sequence`, created at `at_ms` (Unix ms)."""

    generation: int
    sequence: int
    at_ms: int

    @property
    def name(self) -> str:
        return f"snapshots/{self.generation:016d}-{self.sequence:016d}-{self.at_ms:016d}.db.gz"


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """The commits `first` to `last`, the last of `at_ms` (Unix ms)."""

    generation: int
    first: int
    last: int
    at_ms: int

    @property
    def name(self) -> str:
        return f"journal/{self.generation:016d}-{self.first:016d}-{self.last:016d}-{self.at_ms:016d}.gz"


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of the remote state, in order."""

    generations: Sequence[Generation] = ()
    snapshots: Sequence[Snapshot] = ()
    segments: Sequence[Segment] = ()

    @property
    def newest_generation(self) -> int:
        """Return the newest generation; 0 if there is none."""
        return self.generations[-1].number if self.generations else 0

    def end_of(self, generation: int) -> int | None:
        """Return the last valid commit of a generation; None for the newest generation, whose commits are all valid."""
        later = [item.base for item in self.generations if item.number > generation]
        return min(later) if later else None

    def counts(self, generation: int, sequence: int) -> bool:
        """Return whether a commit belongs to the history."""
        end = self.end_of(generation)
        return end is None or sequence <= end


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """A snapshot and the segments to replay after it, in order. `head` is the last commit in them."""

    snapshot: Snapshot
    segments: Sequence[Segment]
    head: int


def listing_of(names: Iterable[str]) -> Listing:
    """Parse names; ignore names outside of this layout."""
    generations, snapshots, segments = [], [], []
    for name in names:
        folder, _, rest = name.rpartition("/")
        numbers = rest.partition(".")[0].split("-")
        if not all(number.isdigit() for number in numbers):
            continue
        values = [int(number) for number in numbers]
        kind = folder.rpartition("/")[2]
        if kind == "generations" and len(values) == 2:
            generations.append(Generation(*values))
        elif kind == "snapshots" and len(values) == 3:
            snapshots.append(Snapshot(*values))
        elif kind == "journal" and len(values) == 4:
            segments.append(Segment(*values))
    return Listing(sorted(generations), sorted(snapshots), sorted(segments))


def plan_restore(listing: Listing, at_ms: int | None = None) -> RestorePlan:
    """Return the plan for the latest state, or the one at `at_ms` (Unix ms).

    Raises:
        NotFound: There is no snapshot, or none is old enough.
    """
    usable = [
        item
        for item in listing.snapshots
        if listing.counts(item.generation, item.sequence) and (at_ms is None or item.at_ms <= at_ms)
    ]
    if not usable:
        oldest = min((item.at_ms for item in listing.snapshots), default=None)
        raise NotFound(
            "there is no snapshot of the state"
            if oldest is None
            else f"there is no snapshot at or before {at_ms} ms; the oldest is of {oldest} ms"
        )
    snapshot = max(usable, key=lambda item: (item.sequence, item.generation))
    head = snapshot.sequence
    chosen: list[Segment] = []
    for segment in sorted(listing.segments, key=lambda item: (item.first, item.generation)):
        if segment.last <= head or not listing.counts(segment.generation, segment.last):
            continue
        if segment.first > head + 1 or (at_ms is not None and segment.at_ms > at_ms):
            break
        chosen.append(segment)
        head = segment.last
    return RestorePlan(snapshot, chosen, head)


def superfluous(listing: Listing, before_ms: int) -> list[str]:
    """Return the names that no restore to a time at or after `before_ms` needs."""
    older = [
        item for item in listing.snapshots if item.at_ms <= before_ms and listing.counts(item.generation, item.sequence)
    ]
    if not older:
        return []
    kept = max(older, key=lambda item: (item.sequence, item.generation))
    old_snapshots = [item.name for item in older if item.sequence < kept.sequence]
    old_segments = [item.name for item in listing.segments if item.last <= kept.sequence]
    return old_snapshots + old_segments
