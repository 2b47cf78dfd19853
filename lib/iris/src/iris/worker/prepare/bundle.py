"""Fetches blobs and bundles once, verifies them, and writes them atomically."""

import asyncio
import errno
import hashlib
import logging
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from iris.domain.states import FailureKind
from iris.rpc.manifest import BundleEntry, check_entries, parse_manifest
from iris.worker.isolation.seals import Seals, own_tree, tree_state
from iris.worker.paths import WorkPaths
from iris.worker.prepare.bundle_check import SoundTrees, check_links, mode_of, remove_strays, wrong_entries
from iris.worker.prepare.single_flight import SingleFlight
from iris.worker.types import PreparationFailed
from rigging.errors import MarinError, Unavailable
from rigging.timing import ExponentialBackoff

logger = logging.getLogger(__name__)


FETCH_BATCH: Final = 500
_MENDED_TIMES = 3
_SHOWN = 3


class BlobSource(Protocol):
    """A source of blobs: the controller."""

    def fetch(self, digests: list[str]) -> AsyncIterator[tuple[str, int, bytes, bool]]:
        """Yield chunks (digest, offset, data, last), the chunks of one blob in order. Raises MarinError."""
        ...


class BundleStore:
    """Bundles unpacked below `paths.bundles`, blobs below `paths.blobs`.

    Damaged files are removed and fetched again. This process compares an unpacked bundle with its manifest before the
    first use, and again if a file's times, size or mode have changed. An invalid bundle or a blob that the controller
    does not have is the job's failure (START). An unreachable controller or a broken transfer counts against neither
    the job nor the host (PREEMPTED). Only disk errors are the host's failure (WORKER).

    Args:
        paths: The worker's files.
        source: The controller.
        patience_s: How long to retry an unreachable controller.
        seals: Detect changed bundles, if tasks can change them; changed bundles are unpacked again.
        sound: Tracks verified bundles, if tasks cannot change them.
        fetch_batch: Number of blobs to request at a time.
        owner: The uid that owns unpacked bundles, whose tasks write to views of them; 0 for this process's.
    """

    def __init__(
        self,
        paths: WorkPaths,
        source: BlobSource,
        patience_s: float = 60.0,
        seals: Seals | None = None,
        sound: SoundTrees | None = None,
        fetch_batch: int = FETCH_BATCH,
        owner: int = 0,
    ) -> None:
        self._owner = owner
        self._fetch_batch = fetch_batch
        self._paths = paths
        self._source = source
        self._patience_s = patience_s
        self._seals = seals
        self._sound = SoundTrees() if sound is None else sound
        self._flights: SingleFlight[Path] = SingleFlight()
        self._seen_right: dict[str, Signature] = {}

    async def blob(self, digest: str) -> Path:
        """Return the file of blob `digest`, verified since its last change. Raises PreparationFailed."""
        path = self._paths.blobs / digest
        if self.is_sound(digest):
            return path
        return await self._flights.run(f"blob {digest}", lambda: self._sound_blob(digest))

    async def bundle(self, digest: str) -> Path:
        """Return the directory of bundle `digest`, complete. Raises PreparationFailed."""
        path = self._paths.bundles / digest
        if _marker(path).exists():
            if self._seals is None:
                if self.was_just_seen(digest):
                    return path
                return await self._flights.run(f"bundle {digest}", lambda: self._sound_bundle(digest))
            if await asyncio.to_thread(self._seals.is_intact, path):
                return path
        return await self._flights.run(f"bundle {digest}", lambda: self._unpack(digest))

    def was_just_seen(self, digest: str) -> bool:
        """Return whether bundle `digest` was verified a moment ago, without reading files."""
        return self._seals is None and self._sound.was_just_seen(self._paths.bundles / digest)

    def is_sound(self, digest: str) -> bool:
        """Return whether the blob is stored here, unchanged since its verification."""
        known = self._seen_right.get(digest)
        return known is not None and known == signature(self._paths.blobs / digest)

    async def close(self) -> None:
        await self._flights.close()

    async def _sound_blob(self, digest: str) -> Path:
        path = self._paths.blobs / digest
        try:
            # Taken before the bytes are read: what is changed meanwhile is then read again.
            found = signature(path)
            if found is None or not await asyncio.to_thread(_is_right, path, digest):
                await self._fetch([digest], f"blob {digest}")
                found = signature(path)
        except OSError as error:
            raise PreparationFailed(
                FailureKind.WORKER, f"blob {digest} cannot be read on the worker: {error}"
            ) from error
        if found is not None:
            self._seen_right[digest] = found
        return path

    async def _sound_bundle(self, digest: str) -> Path:
        """Return an unpacked bundle. Repairs a damaged bundle in place, because other attempts may run in it."""
        target = self._paths.bundles / digest
        if await asyncio.to_thread(self._sound.is_unchanged, target):
            return target
        what = f"bundle {digest[:12]}"
        entries = await self._entries(digest, what)
        try:
            for _ in range(_MENDED_TIMES):
                # Taken before the bytes are read: what is changed meanwhile is then read again.
                state = await asyncio.to_thread(tree_state, target)
                wrong, strays = await asyncio.to_thread(wrong_entries, target, entries, self._part_size)
                if not wrong and not strays:
                    self._sound.found_right(target, state)
                    return target
                if self._owner:
                    break  # who owns it could have what is mended in it written elsewhere
                names = [str(path.relative_to(target)) for path in strays] + [entry.path for entry in wrong]
                more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
                logger.warning("%s was changed on this host: %s%s; restoring the original", what, names[:_SHOWN], more)
                await asyncio.to_thread(remove_strays, strays)
                await self._with_parts(wrong, what, partial(self._mend, wrong, target))
                os.utime(target)  # tells what is mounted over it that it was changed
        except OSError as error:
            logger.warning("%s cannot be repaired: %s; unpacking it again", what, error)
        return await self._unpack(digest)

    async def _entries(self, digest: str, what: str) -> list[BundleEntry]:
        manifest = await asyncio.to_thread((await self.blob(digest)).read_bytes)
        try:
            return await asyncio.to_thread(_checked_entries, manifest)
        except MarinError as error:
            raise PreparationFailed(FailureKind.START, f"{what} is not usable: {error}") from error

    async def _with_parts(self, entries: list[BundleEntry], what: str, write: Callable[[], None]) -> None:
        """Call `write` in a thread with the parts of `entries`; retry once if some of them are damaged."""
        parts = {part for entry in entries for part in entry.part_digests}
        await self._fetch_missing(parts, what)
        try:
            await asyncio.to_thread(write)
        except _Damaged:
            await asyncio.to_thread(self._remove_damaged, parts)
            await self._fetch_missing(parts, what)
            await asyncio.to_thread(write)

    async def _unpack(self, digest: str) -> Path:
        what = f"bundle {digest[:12]}"
        entries = await self._entries(digest, what)
        target = self._paths.bundles / digest
        try:
            await self._with_parts(entries, what, lambda: self._write_tree(entries, target))
            if self._seals is None:
                self._sound.found_right(target, await asyncio.to_thread(tree_state, target))
        except OSError as error:
            kind = FailureKind.START if error.errno == errno.ENAMETOOLONG else FailureKind.WORKER
            raise PreparationFailed(kind, f"{what} cannot be unpacked to {target}: {error.strerror}") from error
        if self._seals is not None:
            await asyncio.to_thread(self._seals.seal, target)
        return target

    async def _fetch_missing(self, parts: set[str], what: str) -> None:
        missing = await asyncio.to_thread(lambda: sorted(p for p in parts if not (self._paths.blobs / p).exists()))
        for start in range(0, len(missing), self._fetch_batch):
            await self._fetch(missing[start : start + self._fetch_batch], what)

    async def _fetch(self, digests: list[str], what: str) -> None:
        """Fetch blobs; retry once if they arrive damaged, and repeatedly if the controller does not answer."""
        deadline = time.monotonic() + self._patience_s
        backoff = ExponentialBackoff(initial=0.05, maximum=1.0, factor=1.6, jitter=0.2)
        damaged = False
        wanted = dict.fromkeys(digests)
        while wanted:
            try:
                await self._fetch_once(wanted)
            except _Damaged as error:
                if damaged:
                    raise PreparationFailed(FailureKind.PREEMPTED, f"{what} cannot be fetched: {error}") from error
                damaged = True
            except Unavailable as error:
                if time.monotonic() > deadline:
                    raise PreparationFailed(FailureKind.PREEMPTED, f"{what} cannot be fetched: {error}") from error
                await asyncio.sleep(backoff.next_interval())
            except OSError as error:
                raise PreparationFailed(
                    FailureKind.WORKER, f"{what} cannot be stored on the worker: {error}"
                ) from error
            except MarinError as error:
                raise PreparationFailed(FailureKind.START, f"{what} cannot be fetched: {error}") from error

    async def _fetch_once(self, wanted: dict[str, None]) -> None:
        """Fetch the `wanted` blobs, removing each from `wanted` when it has arrived. Raises MarinError, OSError."""
        writer: _BlobWriter | None = None
        try:
            async for digest, offset, data, last in self._source.fetch(list(wanted)):
                if writer is None:
                    if digest not in wanted:
                        raise MarinError(f"the controller sent blob {digest}, which was not requested")
                    writer = _BlobWriter(self._paths.blobs, digest)
                writer.add(digest, offset, data)
                if last:
                    writer.finish()
                    wanted.pop(digest)
                    writer = None
        finally:
            if writer is not None:
                writer.discard()
        if wanted:
            raise MarinError(f"the controller sent nothing for blob {', '.join(sorted(wanted)[:3])}")

    def _remove_damaged(self, parts: set[str]) -> None:
        for part in parts:
            path = self._paths.blobs / part
            if path.exists() and not _is_right(path, part):
                logger.warning("blob %s is damaged on this host: fetching it again", part)

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
            check_links(entries, temporary)
            if target.exists():  # a former worker was killed before it set the marker
                shutil.rmtree(target)
            if self._owner:
                own_tree(temporary, self._owner)
            temporary.rename(target)
            _marker(target).touch()
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _mend(self, wrong: list[BundleEntry], target: Path) -> None:
        """Replace each entry atomically, because it may be in use."""
        for entry in wrong:
            path = target / entry.path
            temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
            path.parent.mkdir(parents=True, exist_ok=True)
            if entry.is_directory:
                path.mkdir(exist_ok=True)
                continue
            try:
                self._write_entry(entry, temporary)
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)

    def _part_size(self, part: str) -> int:
        return (self._paths.blobs / part).stat().st_size

    def _write_entry(self, entry: BundleEntry, path: Path) -> None:
        if entry.is_directory:
            path.mkdir()
            return
        if entry.symlink_target:
            path.symlink_to(entry.symlink_target)
            return
        with open(path, "xb") as file:
            for part in entry.part_digests:
                data = (self._paths.blobs / part).read_bytes()
                if hashlib.sha256(data).hexdigest() != part:
                    raise _Damaged(f"blob {part} is damaged on this host")
                file.write(data)
            mode = mode_of(entry)
            os.fchmod(file.fileno(), mode if self._seals is None else mode & 0o555)


class _Damaged(OSError, MarinError):
    """The content of a blob does not match its digest."""

    def __init__(self, message: str) -> None:
        super().__init__(errno.EIO, message)


Signature = tuple[int, int, int, int]


def signature(path: Path | str) -> Signature | None:
    """Return numbers that change with any write to a file, even if its times are reset; None for a missing file."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _is_right(path: Path, digest: str) -> bool:
    """Return whether the file's content matches the blob's digest; remove the file if not."""
    try:
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                return True
        path.unlink()
    except FileNotFoundError:
        pass
    return False


def _checked_entries(manifest: bytes) -> list[BundleEntry]:
    entries = parse_manifest(manifest)
    check_entries(entries)
    return entries


class _BlobWriter:
    """One incoming blob, under a temporary name until its digest is verified."""

    def __init__(self, directory: Path, digest: str) -> None:
        self._target = directory / digest
        self._temporary = directory / f".{digest}.{secrets.token_hex(4)}"
        self._file = open(self._temporary, "wb")  # noqa: SIM115 - closed by finish and discard
        self._hash = hashlib.sha256()
        self._digest = digest
        self._size = 0

    def add(self, digest: str, offset: int, data: bytes) -> None:
        if digest != self._digest or offset != self._size:
            raise MarinError(f"chunk of {digest} at {offset} came instead of {self._digest} at {self._size}")
        self._file.write(data)
        self._hash.update(data)
        self._size += len(data)

    def finish(self) -> None:
        self._file.close()
        if self._hash.hexdigest() != self._digest:
            self._temporary.unlink()
            raise _Damaged(f"blob {self._digest} arrived damaged: its bytes have digest {self._hash.hexdigest()}")
        self._temporary.rename(self._target)

    def discard(self) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)


def _marker(bundle: Path) -> Path:
    return bundle.with_name(f"{bundle.name}.complete")
