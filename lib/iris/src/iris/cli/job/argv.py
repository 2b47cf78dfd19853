"""Parses the parts of `iris job run OPTIONS -- COMMAND` that click cannot: "--", -e, names, devices."""

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click

from rigging.errors import InvalidRequest
from rigging.project.env_files import read_env_files
from rigging.text import command_words

if TYPE_CHECKING:
    from iris.cluster.types import DeviceSpec

ENV_OPTION: Final = "--env-assignment"
_EXAMPLE: Final = "iris job run --cpu 2 -- python -m experiments.hello_world"


def split_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before and after the first "--". Raise UsageError if it is missing, or nothing
    follows it.
    """
    try:
        return command_words.split_command(words, _EXAMPLE)
    except InvalidRequest as error:
        raise click.UsageError(str(error)) from None


def rewrite_env(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Turn each `-e KEY VALUE`, `-e KEY=VALUE` and `-e KEY` into a single argument that click can parse.

    `-e KEY` takes the value from `environ`. It needs to be the last argument, or to precede one that starts with "-".

    Raises:
        UsageError: The name is missing, invalid, or not set in `environ`.
    """
    try:
        return command_words.rewrite_env(words, environ, ENV_OPTION)
    except InvalidRequest as error:
        raise click.UsageError(str(error)) from None


def job_variables(assignments: Sequence[str], files: Sequence[str]) -> dict[str, str]:
    """Return the variables of `--env-file`, overridden by those of `-e`.

    Args:
        assignments: The results of `rewrite_env`, e.g. "K=v".
        files: Environment files. Later ones win.

    Raises:
        InvalidRequest: A file is missing or malformed.
        BadParameter: A name is reserved for iris.
    """
    given = dict(assignment.split("=", 1) for assignment in assignments)
    from_files = read_env_files(files)
    for variable in filter(is_own_variable, {**from_files, **given}):
        raise click.BadParameter(
            f"{variable} is what iris itself tells each task; give another name",
            param_hint="'-e'" if variable in given else "'--env-file'",
        )
    return {**from_files, **given}


def submit_command(options: Sequence[str], program: Sequence[str]) -> str:
    """Return the arguments up to "--" that repeat a submission of `iris job run` with these options.

    Omit the job's name, which must be unique, and the values of secret variables.

    Args:
        options: The arguments between `iris job run` and "--", as typed.
        program: The arguments before them.
    """
    kept, _ = command_words.withhold_secrets(options)
    words: list[str] = []
    remaining = iter(kept)
    for word in remaining:
        if word == "--job-name":
            next(remaining, None)
        elif not word.startswith("--job-name="):
            words.append(word)
    return shlex.join([*program, *words])


def parse_gpu(text: str) -> "DeviceSpec":
    """Parse "[TYPEx]N": "2", "H100x8". Raise UsageError for other text, including empty text."""
    from iris.cluster.types import gpu_device

    match = re.fullmatch(r"(?:(?P<variant>.+)x)?(?P<count>[0-9]+)", text)
    # "H100x8x2": no type ends in a count; "rtx4000" does in a model's number.
    if match is None or int(match["count"]) < 1 or re.fullmatch(r".*x[0-9]{1,2}", match["variant"] or ""):
        raise click.UsageError(f"--gpu {text!r}: write a count, or a type and a count, e.g. 8 or H100x8")
    try:
        return gpu_device(match["variant"] or "", int(match["count"]))
    except InvalidRequest as error:
        raise click.UsageError(f"--gpu {text!r}: {error}") from None


def parse_tpu(text: str) -> "DeviceSpec":
    """Parse "V[,V2...]": the preferred type, then acceptable types. Raise UsageError for unknown or empty types."""
    from iris.cluster.types import tpu_device

    types = [word.strip() for word in text.split(",")]
    if "" in types:
        raise click.UsageError(
            f"--tpu {text!r}: write a type, or several with commas between, e.g. v5p-8 or v5p-8,v4-8"
        )
    try:
        return tpu_device(types)
    except InvalidRequest as error:
        raise click.UsageError(f"--tpu {text!r}: {error}") from None


def parse_reservation(text: str) -> "list[DeviceSpec]":
    """Parse "[COUNT:]DEVICE": COUNT devices, each as in --tpu or --gpu. Raise UsageError for other text."""
    count, separator, device = text.rpartition(":")
    if separator and (not count.isdecimal() or int(count) < 1):
        raise click.UsageError(f"--reserve {text!r}: write a device, or a count and a device, e.g. 4:v5p-8 or 2:H100x8")
    is_tpu = re.match(r"v[0-9]+[a-z]*-", device) is not None
    return [parse_tpu(device) if is_tpu else parse_gpu(device)] * (int(count) if separator else 1)


def default_job_name(command: Sequence[str], now: time.struct_time, salt: str) -> str:
    """Return a name for a job without one, e.g. "hello_world-1121-140301-9f3a".

    Args:
        command: The job's command.
        now: The time of the submission.
        salt: Makes it unique within the same second.
    """
    name = re.sub(r"[^A-Za-z0-9_.@+=-]", "-", _program(command))[:80].strip("-.")
    return f"{name or 'job'}-{time.strftime('%m%d-%H%M%S', now)}-{salt}"


def _program(command: Sequence[str]) -> str:
    words = [word for word in command if "=" not in word or word.startswith("-")] or list(command)
    base = words[0].rpartition("/")[2]
    if base in ("uv", "env", "exec", "nohup", "time") and len(words) > 1:
        rest = words[2:] if base == "uv" and words[1] == "run" else words[1:]
        return _program(rest) if rest else base
    if re.fullmatch(r"python[0-9.]*", base):
        if "-m" in words[:-1]:
            return words[words.index("-m") + 1].rpartition(".")[2]
        script = next((word for word in words[1:] if not word.startswith("-")), base)
        if "-c" not in words:
            return script.rpartition("/")[2].removesuffix(".py")
    return base


_OWN: Final = frozenset(
    {"IRIS_ATTEMPT_ID", "IRIS_JOB_ID", "IRIS_NUM_TASKS", "IRIS_TASK_ID", "IRIS_TASK_INDEX", "IRIS_TOKEN_FILE"}
    | {"IRIS_ERROR_FILE", "IRIS_WORK_DIR", "IRIS_CONTROLLER_ADDRESS", "IRIS_WORKER_ID", "IRIS_BUNDLE_DIGEST"}
    | {"IRIS_EXTRAS", "IRIS_PIP_PACKAGES", "IRIS_RUNTIME", "IRIS_WORKSPACE_DIR", "IRIS_OUTPUT_PIPES"}
    | {"IRIS_LOG_FILE"}
)


def is_own_variable(name: str) -> bool:
    """Return whether the worker always sets this variable itself, so that a job cannot."""
    return name in _OWN
