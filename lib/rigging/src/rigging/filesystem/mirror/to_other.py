"""Copying one file into a prefix on memory:// or any other filesystem: under a temporary name, then moved."""

import contextlib
import os
from collections.abc import Callable

from rigging.filesystem.atomic import TEMPORARY_PREFIX
from rigging.filesystem.mirror.digest import Digest, check_digest, check_size
from rigging.filesystem.mirror.plan import Settings, Wanted
from rigging.filesystem.mirror.root import Root, Store
from rigging.filesystem.mirror.to_local import Moved, read_chunks


def copy_under_temporary_name(
    wanted: Wanted, destination: Root, settings: Settings, charge: Callable[[int], Moved], check: Callable[[], None]
) -> None:
    """Copy through this machine; atomic if the filesystem's move is. A kill loses what was copied, and leaves it."""
    fs, final = destination.fs, destination.path(wanted.path)
    parent, _, _ = final.rpartition("/")
    temporary = f"{parent}/{TEMPORARY_PREFIX}mirror-{os.urandom(8).hex()}"
    moved = charge(wanted.version.size)
    digest = Digest(wanted.version)
    got = 0
    if destination.store is not Store.MEMORY:
        fs.makedirs(parent, exist_ok=True)
    try:
        with fs.open(temporary, "wb") as stream:
            for data in read_chunks(wanted, 0, settings):
                check()
                stream.write(data)
                digest.update(data)
                got += len(data)
                moved(len(data))
        check_size(got, wanted.version, wanted.source_url)
        check_digest(digest, wanted.source, wanted.path)
        if destination.store is Store.MEMORY:
            fs.cp_file(temporary, final)
            fs.rm_file(temporary)
        else:
            fs.mv(temporary, final)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            fs.rm_file(temporary)
        raise
