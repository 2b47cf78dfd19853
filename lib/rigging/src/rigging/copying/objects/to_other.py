"""Copy one file into a prefix on memory:// or any other filesystem: to a temporary name, then move it."""

import contextlib
import os

from rigging.copying.digest import Digest, check_digest, check_size
from rigging.copying.request import Check, CopyRequest, Reserve, Settings
from rigging.copying.source import read_chunks
from rigging.filesystem.atomic import TEMPORARY_PREFIX
from rigging.prefixes.prefix_store import PrefixStore, StoreKind


def copy_under_temporary_name(
    request: CopyRequest,
    destination: PrefixStore,
    settings: Settings,
    reserve: Reserve,
    check: Check,
) -> None:
    """Copy through this machine. The copy is atomic if the filesystem's move is. A kill loses the progress and leaves
    the temporary file.

    Args:
        request: The file, and how it is copied.
        destination: The local prefix.
        settings: Sizes of chunks and parts, in bytes.
        reserve: Reserves bytes in the transfer budget before they move, and returns the counter of moved bytes.
        check: Raises LeaseLostError if another process has taken over the copy.
    """
    fs, final = destination.fs, destination.path(request.path)
    parent, _, _ = final.rpartition("/")
    temporary = f"{parent}/{TEMPORARY_PREFIX}mirror-{os.urandom(8).hex()}"
    moved = reserve(request.version.size)
    digest = Digest(request.version)
    got = 0
    if destination.kind is not StoreKind.MEMORY:
        fs.makedirs(parent, exist_ok=True)
    try:
        with fs.open(temporary, "wb") as stream:
            for data in read_chunks(request, 0, settings):
                check()
                stream.write(data)
                digest.update(data)
                got += len(data)
                moved(len(data))
        check_size(got, request.version, request.source_url)
        check_digest(digest, request.source, request.path)
        if destination.kind is StoreKind.MEMORY:
            fs.cp_file(temporary, final)
            fs.rm_file(temporary)
        else:
            fs.mv(temporary, final)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            fs.rm_file(temporary)
        raise
