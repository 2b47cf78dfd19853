"""The system calls for namespaces and mounts that Python 3.11 lacks."""

import ctypes
import errno
import os
import struct
from typing import Final

CLONE_NEWNS: Final = 0x20000
CLONE_NEWUSER: Final = 0x10000000

MS_RDONLY: Final = 0x1
MS_REMOUNT: Final = 0x20
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_SLAVE: Final = 0x80000
_MS_RELATIME: Final = 0x200000

CAP_SYS_CHROOT: Final = 18
CAP_SYS_ADMIN: Final = 21

_PR_CAP_AMBIENT: Final = 47
_AMBIENT_RAISE: Final = 2
_AMBIENT_CLEAR_ALL: Final = 4
_CAPABILITY_VERSION: Final = 0x20080522
# Flags of a mount that statvfs gives and that a remount must repeat; those of relatime differ.
_KEPT_FLAGS: Final = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Move this thread to new namespaces. Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    """Enter a namespace; entering a mount namespace changes the working directory to "/". Raises OSError."""
    _check(_libc.setns(descriptor, kind), "setns")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a filesystem, like mount(2).

    Args:
        source: The device or directory.
        target: The mount point.
        kind: The type of filesystem.
        flags: MS_*.
        options: Options of the filesystem.

    Raises:
        OSError: The call failed; the message names the target.
    """
    result = _libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), os.fsencode(options) or None
    )
    _check(result, f"mount {kind or 'bind'} on {target}")


def bind(source: str, target: str, read_only: bool) -> None:
    """Show the directory `source` at `target`. Raises OSError.

    Args:
        source: The directory.
        target: The directory that `source` hides.
        read_only: Whether `target` is read-only.
    """
    mount(source, target, "", MS_BIND | MS_REC)
    if read_only:
        found = os.statvfs(target).f_flag
        kept = found & _KEPT_FLAGS
        if found & os.ST_RELATIME:
            kept |= _MS_RELATIME
        mount("", target, "", MS_BIND | MS_REMOUNT | MS_RDONLY | kept)


def raise_ambient(capabilities: tuple[int, ...]) -> None:
    """Let programs started by this process keep its capabilities. Raises OSError."""
    permitted = _capabilities()[1]
    _set_capabilities(permitted, permitted, sum(1 << number for number in capabilities))
    for number in capabilities:
        _check(_libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_RAISE, number, 0, 0), "prctl(PR_CAP_AMBIENT_RAISE)")


def clear_ambient() -> None:
    """Undo `raise_ambient`. Raises OSError."""
    _check(_libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0), "prctl(PR_CAP_AMBIENT_CLEAR_ALL)")


def _capabilities() -> tuple[int, int]:
    """Return the effective and permitted capabilities."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    data = ctypes.create_string_buffer(24)
    _check(_libc.capget(header, data), "capget")
    low_effective, low_permitted, _, high_effective, high_permitted, _ = struct.unpack("=6I", data.raw)
    return low_effective | high_effective << 32, low_permitted | high_permitted << 32


def _set_capabilities(effective: int, permitted: int, inheritable: int) -> None:
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    low = [value & 0xFFFFFFFF for value in (effective, permitted, inheritable)]
    high = [value >> 32 for value in (effective, permitted, inheritable)]
    _check(_libc.capset(header, struct.pack("=6I", *low, *high)), "capset")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno() or errno.EINVAL
        raise OSError(number, f"{what}: {os.strerror(number)}")
