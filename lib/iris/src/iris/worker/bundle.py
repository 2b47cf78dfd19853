"""Blobs and bundles on this host: fetched once, verified, never half-written."""

import asyncio
import hashlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from pathlib import Path, PurePosixPath
from typing import Generic, Protocol, TypeVar

from iris.domain.states import FailureKind
from iris.worker.paths import WorkPaths
from iris.worker.types import PreparationFailed
from iris.worker.wire import BundleEntry, parse_manifest
from rigging.errors import MarinError

T = TypeVar("T")

_FETCH_BATCH = 500


class BlobSource(Protocol):
    """Where blobs come from."""

    def fetch(self, digests: list[str]) -> AsyncIterator[tuple[str, int, bytes, bool]]:
        """Chunks (digest, offset, data, last), the chunks of one blob in order. Raises MarinError."""
        ...


class SingleFlight(Generic[T]):
    """Runs one piece of work per key at a time; whoever else asks for the key waits for its result."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[T]] = {}

    async def run(self, key: str, work: Callable[[], Coroutine[None, None, T]]) -> T:
        """The result of `work`. It goes on when the caller is cancelled: others may wait, and its result is kept."""
        task = self._running.get(key)
        if task is None:
            task = asyncio.ensure_future(work())
            self._running[key] = task
            task.add_done_callback(lambda done: self._done(key, done))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel what runs and wait for that."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, key: str, task: asyncio.Task[T]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # seen by those who waited, if anybody still did


class BundleStore:
    """Bundles unpacked below `paths.bundles`, blobs below `paths.blobs`."""

    def __init__(self, paths: WorkPaths, source: BlobSource) -> None:
        self._paths = paths
        self._source = source
        self._flights: SingleFlight[Path] = SingleFlight()

    async def blob(self, digest: str) -> Path:
        """The file that holds blob `digest`. Raises PreparationFailed (kind WORKER) when it cannot be had."""
        path = self._paths.blobs / digest
        if path.exists():
            return path
        return await self._flights.run(f"blob {digest}", lambda: self._fetch_one(digest))

    async def bundle(self, digest: str) -> Path:
        """The directory of bundle `digest`, complete. Raises PreparationFailed (kind WORKER)."""
        path = self._paths.bundles / digest
        if _marker(path).exists():
            return path
        return await self._flights.run(f"bundle {digest}", lambda: self._unpack(digest))

    async def close(self) -> None:
        await self._flights.close()

    async def _fetch_one(self, digest: str) -> Path:
        await self._fetch([digest], f"blob {digest}")
        return self._paths.blobs / digest

    async def _unpack(self, digest: str) -> Path:
        what = f"bundle {digest[:12]}"
        manifest = await asyncio.to_thread((await self.blob(digest)).read_bytes)
        try:
            entries = parse_manifest(manifest)
            check_entries(entries)
        except MarinError as error:
            raise PreparationFailed(FailureKind.WORKER, f"{what} is not usable: {error}") from error
        parts = {part for entry in entries for part in entry.part_digests}
        missing = await asyncio.to_thread(lambda: sorted(p for p in parts if not (self._paths.blobs / p).exists()))
        for start in range(0, len(missing), _FETCH_BATCH):
            await self._fetch(missing[start : start + _FETCH_BATCH], what)
        target = self._paths.bundles / digest
        try:
            await asyncio.to_thread(self._write_tree, entries, target)
        except OSError as error:
            reason = f"{what} cannot be unpacked to {target}: {error.strerror}"
            raise PreparationFailed(FailureKind.WORKER, reason) from error
        return target

    async def _fetch(self, digests: list[str], what: str) -> None:
        writer: _BlobWriter | None = None
        wanted = set(digests)
        try:
            async for digest, offset, data, last in self._source.fetch(digests):
                if writer is None:
                    if digest not in wanted:
                        raise PreparationFailed(FailureKind.WORKER, f"{what}: got blob {digest}, not asked for")
                    writer = _BlobWriter(self._paths.blobs, digest)
                writer.add(digest, offset, data)
                if last:
                    writer.finish()
                    wanted.discard(digest)
                    writer = None
        except PreparationFailed:
            raise
        except (MarinError, OSError) as error:
            raise PreparationFailed(FailureKind.WORKER, f"{what} cannot be fetched: {error}") from error
        finally:
            if writer is not None:
                writer.discard()
        if wanted:
            some = ", ".join(sorted(wanted)[:3])
            raise PreparationFailed(FailureKind.WORKER, f"{what}: the controller sent nothing for blob {some}")

    def _write_tree(self, entries: list[BundleEntry], target: Path) -> None:
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        made: set[Path] = set()
        try:
            temporary.mkdir()
            for entry in entries:
                path = temporary / entry.path
                if path.parent not in made:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    made.add(path.parent)
                self._write_entry(entry, path)
            if target.exists():  # a former worker was killed before it set the marker
                shutil.rmtree(target)
            temporary.rename(target)
            _marker(target).touch()
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _write_entry(self, entry: BundleEntry, path: Path) -> None:
        if entry.symlink_target:
            path.symlink_to(entry.symlink_target)
            return
        with open(path, "xb") as file:
            for part in entry.part_digests:
                data = (self._paths.blobs / part).read_bytes()
                if hashlib.sha256(data).hexdigest() != part:
                    (self._paths.blobs / part).unlink()
                    raise OSError(5, f"blob {part} is damaged on this host")
                file.write(data)
            os.fchmod(file.fileno(), 0o555 if entry.executable else 0o444)


class _BlobWriter:
    """One blob on its way in: under a temporary name until its digest is found right."""

    def __init__(self, directory: Path, digest: str) -> None:
        self._target = directory / digest
        self._temporary = directory / f".{digest}.{secrets.token_hex(4)}"
        self._file = open(self._temporary, "wb")  # noqa: SIM115 - closed by finish and discard
        self._hash = hashlib.sha256()
        self._digest = digest
        self._size = 0

    def add(self, digest: str, offset: int, data: bytes) -> None:
        if digest != self._digest or offset != self._size:
            raise MarinError(f"chunk of {digest} at {offset} came while {self._digest} at {self._size} was expected")
        self._file.write(data)
        self._hash.update(data)
        self._size += len(data)

    def finish(self) -> None:
        self._file.close()
        if self._hash.hexdigest() != self._digest:
            self._temporary.unlink()
            raise MarinError(f"blob {self._digest} arrived damaged: its bytes have digest {self._hash.hexdigest()}")
        self._temporary.rename(self._target)

    def discard(self) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)


def check_entries(entries: Iterable[BundleEntry]) -> None:
    """Raise MarinError for a manifest that would write or point outside of its directory."""
    links = {entry.path for entry in entries if entry.symlink_target}
    for entry in entries:
        parts = entry.path.split("/")
        if not entry.path or "\0" in entry.path or any(part in ("", ".", "..") for part in parts):
            raise MarinError(f"path {entry.path!r} is not a plain relative path")
        if any("/".join(parts[:depth]) in links for depth in range(1, len(parts))):
            raise MarinError(f"path {entry.path!r} goes through a symbolic link")
        if entry.symlink_target and not _stays_inside(entry.path, entry.symlink_target):
            raise MarinError(f"link {entry.path!r} points outside of the bundle: {entry.symlink_target!r}")


def link_top_level(bundle: Path, directory: Path, links: Path) -> None:
    """Make `directory` with links to the bundle's top-level entries: what a task writes beside them stays its own.

    The symbolic links are made once, below `links` (on the same filesystem), and hard-linked for every attempt: a new
    inode for each of them can cost as much as starting the process.
    """
    template = links / bundle.name
    names = os.listdir(bundle)
    if not template.exists():
        temporary = links / f".{bundle.name}.{secrets.token_hex(4)}"
        temporary.mkdir()
        for name in names:
            os.symlink(bundle / name, temporary / name)
        temporary.rename(template)
    directory.mkdir()
    for name in names:
        os.link(f"{template}/{name}", f"{directory}/{name}", follow_symlinks=False)


def _stays_inside(path: str, target: str) -> bool:
    if PurePosixPath(target).is_absolute() or "\0" in target:
        return False
    depth = path.count("/")
    for part in target.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return False
    return True


def _marker(bundle: Path) -> Path:
    return bundle.with_name(f"{bundle.name}.complete")
