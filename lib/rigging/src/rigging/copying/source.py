"""Read the source of a copy chunk by chunk, and detect changes to it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from rigging.copying.digest import Digest, check_digest, check_size
from rigging.copying.request import CopyRequest, FileVersion, Reserve, Settings, chunks, version_of
from rigging.errors import Unavailable


class SourceChangedError(Unavailable):
    """The source file was rewritten during its copy."""


def read_chunks(request: CopyRequest, start: int, settings: Settings) -> Iterator[bytes]:
    """Yield the bytes of a file from `start`, prefetching one chunk.

    Args:
        request: The file.
        start: Offset of the first byte.
        settings: The size of chunks in bytes.

    Raises:
        CorruptCopyError: The source delivered fewer or more bytes than its size.
        SourceChangedError: The source was rewritten meanwhile.
    """
    pieces = chunks(start, request.version.size, settings.chunk_bytes)
    if len(pieces) <= 1:
        yield from (_read(request, begin, end) for begin, end in pieces)
        return
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="mirror-read") as ahead:
        coming = ahead.submit(_read, request, *pieces[0])
        for piece in (*pieces[1:], None):
            data = coming.result()
            if piece is not None:
                coming = ahead.submit(_read, request, *piece)
            yield data
    check_unchanged(request)


def read_whole(request: CopyRequest, settings: Settings, reserve: Reserve) -> bytes:
    """Return all bytes of a small file, charged and verified against the source's size and checksum.

    Args:
        request: The file, and how it is copied.
        settings: Sizes of chunks and parts, in bytes.
        reserve: Reserves bytes in the transfer budget before they move, and returns the counter of moved bytes.
    """
    moved = reserve(request.version.size)
    data = b"".join(read_chunks(request, 0, settings))
    moved(len(data))
    digest = Digest(request.version)
    digest.update(data)
    check_size(len(data), request.version, request.source_url)
    check_digest(digest, request.source, request.path)
    return data


def check_unchanged(request: CopyRequest) -> None:
    """Raise SourceChangedError if the source file was replaced or removed."""
    info = request.source.info(request.path)
    if info is None or version_of(info, request.source_url) != request.version:
        raise source_changed(request)


def source_changed(request: CopyRequest) -> SourceChangedError:
    """Return the error for a source that was rewritten or removed during its copy."""
    return SourceChangedError(f"{request.source_url} changed during its copy; the copy was discarded")


def _read(request: CopyRequest, begin: int, end: int) -> bytes:
    source = request.source
    options = {"generation": request.version.generation} if request.version.generation else {}
    whole = begin == 0 and end == request.version.size
    bounds = {} if whole else {"start": begin, "end": end}
    try:
        data: bytes = source.fs.cat_file(request.source_path, **bounds, **options)
    except FileNotFoundError:
        raise source_changed(request) from None
    if len(data) != end - begin:
        check_unchanged(request)
        check_size(begin + len(data), FileVersion(end, ""), request.source_url)
    return data
