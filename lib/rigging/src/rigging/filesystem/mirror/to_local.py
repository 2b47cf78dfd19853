"""Copying one file into a local prefix."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from rigging.errors import Unavailable
from rigging.filesystem.mirror.batch import no_batch_in
from rigging.filesystem.mirror.digest import Digest, check_digest, check_size
from rigging.filesystem.mirror.part import Part, claim_part, create_part, make_parents
from rigging.filesystem.mirror.plan import FileVersion, Settings, Wanted, chunks, version_of
from rigging.filesystem.mirror.root import Root, Store
from rigging.filesystem.naming import NO_ROOM, name_path

_SMALL_BYTES = 2**20
_KERNEL_BYTES = 32 * 2**20
#: Errors with which copy_file_range says that it cannot do it between these two files.
_NOT_IN_KERNEL = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)

#: Told how many more bytes have arrived.
Moved = Callable[[int], None]


class SourceChangedError(Unavailable):
    """The file was rewritten in its region while it was copied."""


def copy_to_local(
    wanted: Wanted, destination: Root, settings: Settings, charge: Callable[[int], Moved], known: set[str]
) -> None:
    """Copy a file under its final local name, unless it is there by then; if this raises, nothing is left.

    Args:
        wanted: The file.
        destination: The local prefix.
        settings: Chunk size and patience.
        charge: Called with the bytes that are still to move, once, before any moves; gives what counts them.
        known: Directories that are there; the one that the file is in is added.
    """
    final = destination.path(wanted.path)
    directory = os.path.dirname(final)
    made = make_parents(directory, known)
    try:
        with no_batch_in(directory, settings.heartbeat_timeout):
            part = None
            if wanted.source.store is Store.LOCAL and wanted.version.size <= _SMALL_BYTES:
                part = create_part(final, wanted.version.fingerprint())
            if part is None:
                part = claim_part(final, wanted.version.fingerprint(), settings.heartbeat_timeout)
            if part is None:
                return
            _finish(part, final, wanted, settings, charge)
    except BaseException:
        known.clear()
        for path in reversed(made):
            # Others may have put something into it meanwhile.
            with contextlib.suppress(OSError):
                os.rmdir(path)
        raise


def _finish(part: Part, final: str, wanted: Wanted, settings: Settings, charge: Callable[[int], Moved]) -> None:
    try:
        _fill(part, wanted, settings, charge)
        part.publish(final)
    except BaseException as error:
        part.discard()
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            name_path(error, final)
        raise
    finally:
        part.close()


def read_chunks(wanted: Wanted, start: int, settings: Settings) -> Iterator[bytes]:
    """Yield the bytes of a file from `start`, one chunk ahead of the reader.

    Raises:
        CorruptCopyError: Fewer or more bytes came than the source has.
        SourceChangedError: It was rewritten meanwhile.
    """
    pieces = chunks(start, wanted.version.size, settings.chunk_bytes)
    if len(pieces) <= 1:
        yield from (_read(wanted, begin, end) for begin, end in pieces)
        return
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="mirror-read") as ahead:
        coming = ahead.submit(_read, wanted, *pieces[0])
        for piece in (*pieces[1:], None):
            data = coming.result()
            if piece is not None:
                coming = ahead.submit(_read, wanted, *piece)
            yield data
    check_unchanged(wanted)


def check_unchanged(wanted: Wanted) -> None:
    """Raise SourceChangedError when the source has another version of the file by now, or none."""
    info = wanted.source.info(wanted.path)
    if info is None or version_of(info, wanted.source_url) != wanted.version:
        raise _changed(wanted)


def _changed(wanted: Wanted) -> SourceChangedError:
    return SourceChangedError(f"{wanted.source_url} was changed while it was copied; nothing of it was kept")


def _read(wanted: Wanted, begin: int, end: int) -> bytes:
    source = wanted.source
    options = {"generation": wanted.version.generation} if wanted.version.generation else {}
    whole = begin == 0 and end == wanted.version.size
    bounds = {} if whole else {"start": begin, "end": end}
    try:
        data: bytes = source.fs.cat_file(wanted.source_path, **bounds, **options)
    except FileNotFoundError:
        raise _changed(wanted) from None
    if len(data) != end - begin:
        check_unchanged(wanted)
        check_size(begin + len(data), FileVersion(end, ""), wanted.source_url)
    return data


def _fill(part: Part, wanted: Wanted, settings: Settings, charge: Callable[[int], Moved]) -> None:
    size = wanted.version.size
    if part.size > size:
        part.restart()
    moved = charge(size - part.size)
    if wanted.source.store is Store.LOCAL:
        _fill_from_file(part, wanted, moved)
        return
    digest = Digest(wanted.version)
    digest.update_from(part.descriptor, part.size)
    for data in read_chunks(wanted, part.size, settings):
        part.append(data)
        digest.update(data)
        moved(len(data))
    check_size(part.size, wanted.version, wanted.source_url)
    check_digest(digest, wanted.source, wanted.path)


def _fill_from_file(part: Part, wanted: Wanted, moved: Moved) -> None:
    try:
        source = os.open(wanted.source_path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _changed(wanted) from None
    try:
        left = wanted.version.size - part.size
        if left <= _SMALL_BYTES:
            # One byte more than expected would show that the file has grown.
            data = os.pread(source, left + 1, part.size)
            part.append(data[:left])
            moved(min(left, len(data)))
            grown = len(data) != left
        else:
            _copy_in_kernel(source, part, wanted.version.size, moved)
            grown = False
        status = os.fstat(source)
        if grown or status.st_size != wanted.version.size or str(status.st_mtime) != wanted.version.mark:
            raise _changed(wanted)
    finally:
        os.close(source)


def _copy_in_kernel(source: int, part: Part, size: int, moved: Moved) -> None:
    in_kernel = True
    while part.size < size:
        count = min(_KERNEL_BYTES, size - part.size)
        if in_kernel:
            try:
                done = os.copy_file_range(source, part.descriptor, count, part.size, part.size)
                part.size += done
            except OSError as error:
                if error.errno not in _NOT_IN_KERNEL:
                    raise
                in_kernel = False
                continue
        else:
            data = os.pread(source, min(count, _SMALL_BYTES), part.size)
            part.append(data)
            done = len(data)
        if done == 0:
            return  # it has become shorter; the caller compares
        moved(done)
