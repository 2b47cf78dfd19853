"""Reads and writes the remote state directory."""

import gzip
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from iris.store.journal import Entry
from iris.store.replicate.layout import Generation, Listing, Segment, Snapshot, listing_of
from rigging.errors import MarinError
from rigging.filesystem import atomic_write, read_bytes_or_none, url_to_fs, write_bytes_atomic

SECRETS = ("secret", "notify-secret")
"""Files of the state directory to replicate: the secrets that sign tokens and notices."""
_AUTHORITY = "tls"
_FAST = 1  # the level of gzip: the network is slower than that anyway


class RemoteState:
    """One remote state directory: any fsspec URL."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    @property
    def lease_url(self) -> str:
        return f"{self.url}/lease.lock"

    def listing(self) -> Listing:
        """Return the names of all objects."""
        filesystem, root = url_to_fs(self.url)
        filesystem.invalidate_cache()
        names: list[str] = []
        for folder in ("generations", "snapshots", "journal"):
            try:
                found = filesystem.ls(f"{root}/{folder}", detail=False)
            except FileNotFoundError:
                continue
            names += (f"{folder}/{name.rstrip('/').rpartition('/')[2]}" for name in found)
        return listing_of(names)

    def put_generation(self, generation: Generation) -> None:
        write_bytes_atomic(f"{self.url}/{generation.name}", b"")

    def put_segment(self, generation: int, entries: Sequence[Entry]) -> None:
        """Write consecutive commits as one object."""
        segment = Segment(generation, entries[0].sequence, entries[-1].sequence, entries[-1].at_ms)
        lines = "".join(f"{entry.sequence} {entry.at_ms} {entry.payload}\n" for entry in entries)
        write_bytes_atomic(f"{self.url}/{segment.name}", gzip.compress(lines.encode(), _FAST))

    def get_segment(self, segment: Segment) -> list[Entry]:
        data = read_bytes_or_none(f"{self.url}/{segment.name}")
        if data is None:
            raise MarinError(f"{self.url}/{segment.name} is gone")
        entries = []
        for line in gzip.decompress(data).decode().splitlines():
            sequence, at_ms, payload = line.split(" ", 2)
            entries.append(Entry(int(sequence), int(at_ms), payload))
        return entries

    def put_snapshot(self, generation: int, database: Path, scratch: Path, at_ms: int) -> Snapshot:
        """Copy the current database without stopping its writer, and upload the copy.

        Args:
            generation: The writer's generation.
            database: The live database.
            scratch: The path of a temporary copy.
            at_ms: The snapshot's time in Unix ms.
        """
        scratch.unlink(missing_ok=True)
        try:
            with _reading(database) as connection:
                connection.execute("VACUUM INTO ?", (str(scratch),))
            scratch.chmod(0o600)
            snapshot = Snapshot(generation, position(scratch)[1], at_ms)
            with (
                scratch.open("rb") as source,
                atomic_write(f"{self.url}/{snapshot.name}") as target,
                gzip.GzipFile(fileobj=target, mode="wb", compresslevel=_FAST, mtime=0) as packed,
            ):
                shutil.copyfileobj(source, packed)
            return snapshot
        finally:
            scratch.unlink(missing_ok=True)

    def get_snapshot(self, snapshot: Snapshot, target: Path) -> None:
        """Write the snapshot's database to `target` (mode 0600)."""
        filesystem, path = url_to_fs(f"{self.url}/{snapshot.name}")
        target.touch(mode=0o600)
        with filesystem.open(path, "rb") as source, gzip.GzipFile(fileobj=source) as packed, target.open("wb") as file:
            shutil.copyfileobj(packed, file)

    def remove(self, names: Sequence[str]) -> None:
        filesystem, root = url_to_fs(self.url)
        for name in names:
            try:
                filesystem.rm_file(f"{root}/{name}")
            except FileNotFoundError:
                continue

    def put_authority(self, files: Mapping[str, bytes]) -> None:
        """Store the files of the controller's CA, including its key: whoever can read the remote state can act as the
        cluster.
        """
        for name, content in files.items():
            write_bytes_atomic(f"{self.url}/{_AUTHORITY}/{name}", content)

    def get_authority(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the stored files of the CA."""
        found = {name: read_bytes_or_none(f"{self.url}/{_AUTHORITY}/{name}") for name in names}
        return {name: content for name, content in found.items() if content is not None}

    def put_secret(self, name: str, text: bytes) -> None:
        """Store a file of SECRETS."""
        write_bytes_atomic(f"{self.url}/{name}", text)

    def get_secret(self, name: str) -> bytes | None:
        """Return a file of SECRETS; None if it is not stored."""
        return read_bytes_or_none(f"{self.url}/{name}")


def position(database: Path) -> tuple[int, int]:
    """Return the generation and last commit of a database; (0, 0) if its release had no journal."""
    with _reading(database) as connection:
        try:
            row = connection.execute("SELECT generation, sequence FROM replication").fetchone()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return 0, 0
            raise MarinError(f"cannot use the database {database}: {error}") from error
    return int(row[0]), int(row[1])


def read_waiting(database: Path, after: int, most_bytes: int) -> list[Entry]:
    """Return the commits after a number in a database's journal, in order, up to about `most_bytes` but at least one.

    Args:
        database: The database's file.
        after: The number of a commit.
        most_bytes: The size at which to stop.
    """
    found: list[Entry] = []
    size = 0
    with _reading(database) as connection:
        rows = connection.execute(
            "SELECT sequence, at_ms, payload FROM journal WHERE sequence > ? ORDER BY sequence", (after,)
        )
        for row in rows:
            found.append(Entry(*row))
            size += len(found[-1].payload)
            if size >= most_bytes:
                break
    if not found or found[0].sequence != after + 1:
        raise MarinError(f"the journal of {database} does not go on from commit {after}")
    return found


def first_waiting(database: Path) -> int | None:
    """Return the number of the first commit in a database's journal; None if it is empty."""
    with _reading(database) as connection:
        (first,) = connection.execute("SELECT min(sequence) FROM journal").fetchone()
    return None if first is None else int(first)


def _reading(database: Path) -> closing[sqlite3.Connection]:
    """Return a connection that changes nothing, not even by recovering after a crash."""
    return closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, isolation_level=None))
