"""The directories that an overlay needs for writes, and their fast removal if nothing was written."""

import contextlib
import os
import secrets
from typing import Final

_WORK: Final = ".work"
_MADE_BY_KERNEL: Final = ("work/incompat/volatile", "work/incompat", "work")
_DIRTY: Final = "work/incompat/volatile/dirty"
"""Left in a work directory by a mount with the option "volatile"."""


def layer_paths(layer: str) -> tuple[str, str]:
    """Return the upper directory of a layer and its work directory."""
    return layer, f"{layer}{_WORK}"


def make_layer(layer: str, below: str = "") -> tuple[str, str]:
    """Create the upper directory and the work directory of `layer`; return both. Raises OSError.

    Files that the worker placed in the upper directory before belong to the attempt's view.

    Args:
        layer: In a directory in which tasks cannot replace it.
        below: The lower directory, whose owner becomes the owner of the upper one; empty for this process's user.
    """
    upper, work = layer_paths(layer)
    try:
        os.mkdir(work, 0o755)
    except FileExistsError:
        # A layer can be mounted once: if a start is given up and made again, it needs another.
        upper = f"{layer}.{secrets.token_hex(2)}"
        _, work = layer_paths(upper)
        os.mkdir(work, 0o755)
    with contextlib.suppress(FileExistsError):
        os.mkdir(upper, 0o755)
    if below and os.geteuid() == 0:
        with contextlib.suppress(FileNotFoundError):  # what is not there cannot be mounted
            owner = os.stat(below)
            os.chown(upper, owner.st_uid, owner.st_gid, follow_symlinks=False)
    return upper, work


def remove_unused_layers(directory: str) -> bool:
    """Remove a directory of layers if nothing was written to them; return False if the rest must be removed
    otherwise.
    """
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return True
    with contextlib.suppress(OSError):
        for name in names:
            path = f"{directory}/{name}"
            if not name.endswith(_WORK):
                os.rmdir(path)
                continue
            if os.geteuid() != 0:
                os.chmod(f"{path}/work", 0o700)  # the kernel made it without any permission
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{path}/{_DIRTY}")
            for inner in _MADE_BY_KERNEL:
                with contextlib.suppress(FileNotFoundError):
                    os.rmdir(f"{path}/{inner}")
            os.rmdir(path)
        os.rmdir(directory)
        return True
    return False
