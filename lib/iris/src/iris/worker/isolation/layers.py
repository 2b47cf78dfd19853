"""Creates an overlay's directories for writes, and removes them fast if they are unused."""

import contextlib
import os
import secrets
from typing import Final

_WORK: Final = ".work"
_MADE_BY_KERNEL: Final = ("work/incompat/volatile", "work/incompat", "work")
_DIRTY: Final = "work/incompat/volatile/dirty"
"""A mount with the option "volatile" leaves this directory in the work directory."""


def layer_paths(layer: str) -> tuple[str, str]:
    """Return the upper directory of a layer and its work directory."""
    return layer, f"{layer}{_WORK}"


def make_layer(layer: str, below: str = "") -> tuple[str, str]:
    """Create the upper directory and the work directory of `layer`; return both. Raises OSError.

    Files already in the upper directory belong to the attempt's view.

    Args:
        layer: The layer's directory, where tasks cannot replace it.
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
    """Remove a directory of unused layers; return False if some were used and must be removed recursively."""
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
