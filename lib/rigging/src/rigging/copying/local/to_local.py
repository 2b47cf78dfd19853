"""Copy one file into a local prefix."""

import contextlib
import errno
import os

from rigging.copying.digest import Digest, check_digest, check_size
from rigging.copying.local.batch import no_batch_in
from rigging.copying.local.part import Part, claim_part, create_part, make_parents
from rigging.copying.request import CopyRequest, Moved, Reserve, Settings
from rigging.copying.source import read_chunks, source_changed
from rigging.filesystem.location import NO_ROOM, name_path
from rigging.prefixes.prefix_store import PrefixStore, StoreKind

_SMALL_BYTES = 2**20
_KERNEL_BYTES = 32 * 2**20
#: Errors with which copy_file_range says that it cannot do it between these two files.
_NOT_IN_KERNEL = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


def copy_to_local(
    request: CopyRequest, destination: PrefixStore, settings: Settings, reserve: Reserve, known: set[str]
) -> None:
    """Copy a file to its final local name, unless that already exists. A failure leaves nothing behind.

    Args:
        request: The file.
        destination: The local prefix.
        settings: The chunk size and the stall timeout.
        reserve: Called once, before any bytes move, with the number of remaining bytes. Returns their counter.
        known: Directories known to exist. The file's directory is added.
    """
    final = destination.path(request.path)
    directory = os.path.dirname(final)
    made = make_parents(directory, known)
    try:
        with no_batch_in(directory, settings.heartbeat_timeout):
            part = None
            if request.source.kind is StoreKind.LOCAL and request.version.size <= _SMALL_BYTES:
                part = create_part(final, request.version.fingerprint())
            if part is None:
                part = claim_part(final, request.version.fingerprint(), settings.heartbeat_timeout)
            if part is None:
                return
            _finish(part, final, request, settings, reserve)
    except BaseException:
        known.clear()
        for path in reversed(made):
            # Others may have put something into it meanwhile.
            with contextlib.suppress(OSError):
                os.rmdir(path)
        raise


def _finish(part: Part, final: str, request: CopyRequest, settings: Settings, reserve: Reserve) -> None:
    try:
        _fill(part, request, settings, reserve)
        part.publish(final)
    except BaseException as error:
        part.discard()
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            name_path(error, final)
        raise
    finally:
        part.close()


def _fill(part: Part, request: CopyRequest, settings: Settings, reserve: Reserve) -> None:
    size = request.version.size
    if part.size > size:
        part.restart()
    moved = reserve(size - part.size)
    if request.source.kind is StoreKind.LOCAL:
        _fill_from_file(part, request, moved)
        return
    digest = Digest(request.version)
    digest.update_from(part.descriptor, part.size)
    for data in read_chunks(request, part.size, settings):
        part.append(data)
        digest.update(data)
        moved(len(data))
    check_size(part.size, request.version, request.source_url)
    check_digest(digest, request.source, request.path)


def _fill_from_file(part: Part, request: CopyRequest, moved: Moved) -> None:
    try:
        source = os.open(request.source_path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise source_changed(request) from None
    try:
        left = request.version.size - part.size
        if left <= _SMALL_BYTES:
            # One byte more than expected would show that the file has grown.
            data = os.pread(source, left + 1, part.size)
            part.append(data[:left])
            moved(min(left, len(data)))
            grown = len(data) != left
        else:
            _copy_in_kernel(source, part, request.version.size, moved)
            grown = False
        status = os.fstat(source)
        if grown or status.st_size != request.version.size or str(status.st_mtime) != request.version.mark:
            raise source_changed(request)
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
