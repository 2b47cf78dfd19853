"""The names of the files that the executor keeps in a step's output path. Imports nothing."""

from typing import Final

STATUS_FILE: Final = ".executor_status"
INFO_FILE: Final = ".executor_info"
ARTIFACT_FILE: Final = ".artifact"
ARTIFACT_DIGEST_FILE: Final = ARTIFACT_FILE + ".sha256"
LOG_FILE: Final = ".log"
ERROR_FILE: Final = ".error"
TARGET_CONFIG_FILE: Final = ".target_config"

WAITING_FILE: Final = ".waiting_for"

LOCK_SUFFIX: Final = ".lock"
LOCK_FILE: Final = STATUS_FILE + LOCK_SUFFIX

_RECORDS: Final = frozenset({INFO_FILE, LOG_FILE, ERROR_FILE, WAITING_FILE, TARGET_CONFIG_FILE, ARTIFACT_DIGEST_FILE})


def is_record(name: str) -> bool:
    """True for a file that describes how an output was made; the return value (`.artifact`) is a part of the output."""
    file = name.rpartition("/")[2]
    return file in _RECORDS or file.startswith(STATUS_FILE)
