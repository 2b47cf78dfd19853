"""The environment variables that controllers and workers keep: settings of the host, no secrets.

Tasks run as the user of their worker and can read /proc/PID/environ of its processes. The list is in
docs/reference/iris-clusters.md.
"""

import logging
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

_CERTIFICATES: Final = frozenset({"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS"})
PASSED_TO_TASKS: Final = _CERTIFICATES | {
    *("PATH", "HOME", "LANG", "TMPDIR", "USER", "LOGNAME", "TZ", "TERM", "LD_LIBRARY_PATH")
}
PREFIXES_PASSED_TO_TASKS: Final = ("LC_", "PIP_", "SSL_", "UV_")
KEPT: Final = PASSED_TO_TASKS | {
    *("SHELL", "LANGUAGE", "HOSTNAME", "PWD", "VIRTUAL_ENV", "NO_COLOR", "CUDA_VISIBLE_DEVICES", "CUDA_HOME"),
    *("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT", "NO_GCE_CHECK"),
}
KEPT_PREFIXES: Final = (*PREFIXES_PASSED_TO_TASKS, "COVERAGE_", "GRPC_", "IRIS_", "NVIDIA_", "PYTHON", "TPU_", "XDG_")
PROXIES: Final = frozenset({"http_proxy", "https_proxy", "no_proxy", "all_proxy"})
_SECRET: Final = re.compile(r"TOKEN|PASS(WORD|WD|PHRASE)|SECRET|CREDENTIAL|(API|ACCESS|PRIVATE)_?KEY|COOKIE|NETRC")

STORAGE_PREFIXES: Final = ("AWS_", "AZURE_", "CLOUDSDK_", "FSSPEC_", "GOOGLE_", "STORAGE_EMULATOR_")
"""Variables with a controller's credentials for its remote state directory, hidden from other processes."""


def is_passed_to_tasks(name: str) -> bool:
    """Return whether tasks get a variable of their worker's own environment."""
    return (
        name in PASSED_TO_TASKS or name.startswith(PREFIXES_PASSED_TO_TASKS) or name.lower() in PROXIES
    ) and not _SECRET.search(name)


def is_kept(name: str) -> bool:
    """Return whether controllers and workers keep a variable of the process that starts them."""
    return is_passed_to_tasks(name) or ((name in KEPT or name.startswith(KEPT_PREFIXES)) and not _SECRET.search(name))


def host_environment(
    environ: Mapping[str, str], *, storage: bool = False, names: Collection[str] = ()
) -> dict[str, str]:
    """Return the variables of an environment to keep.

    Args:
        environ: The environment.
        storage: Also keep the variables for remote storage (STORAGE_PREFIXES), including secrets.
        names: Also keep these: variables of the cluster file.
    """
    return {
        name: value
        for name, value in environ.items()
        if is_kept(name) or (storage and name.startswith(STORAGE_PREFIXES)) or name in names
    }


def hide_own_environment(*, storage: bool = False, names: Collection[str] = ()) -> None:
    """Remove all but the kept variables from this process, and erase them from /proc/PID/environ.

    That file shows the variables as of the program's start, regardless of later changes to os.environ.

    Args:
        storage: Keep the variables for remote storage, visible only to this process.
        names: Keep these in the same way.
    """
    kept = host_environment(os.environ, storage=storage, names=names)
    for name in [name for name in os.environ if name not in kept]:
        del os.environ[name]
    shown = {name for name in kept if is_kept(name)}
    for name in kept.keys() - shown:
        os.environ[name] = kept[name]  # a copy elsewhere, to which getenv() leads from now on
    try:
        _wipe(shown)
    except OSError as error:
        logger.warning("other processes of this user can read this process's initial environment: %s", error)


def _wipe(shown: Collection[str]) -> None:
    import ctypes  # the command line imports this module, and needs no ctypes

    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end of proc(5)
    if not start:
        raise OSError("the kernel does not reveal its address")
    at = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        if entry and os.fsdecode(entry.partition(b"=")[0]) not in shown:
            ctypes.memset(at, 0, len(entry))
        at += len(entry) + 1
