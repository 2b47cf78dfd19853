"""Parse command lines that run another: `TOOL OPTIONS -- COMMAND`, with -e for the command's variables."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from rigging.errors import InvalidRequest
from rigging.redaction import is_secret_name

_ENV_FLAGS: Final = ("-e", "--env", "--env-vars")


def split_command(words: Sequence[str], example: str) -> tuple[list[str], list[str]]:
    """Return the arguments before and after the first "--".

    Args:
        words: The arguments.
        example: A correct command line, for the error.

    Raises:
        InvalidRequest: There is no "--", or nothing after it.
    """
    if "--" not in words:
        raise InvalidRequest(f"put -- before the command, e.g. {example}")
    at = list(words).index("--")
    if at + 1 == len(words):
        raise InvalidRequest(f"no command after --; e.g. {example}")
    return list(words[:at]), list(words[at + 1 :])


def rewrite_env(words: Sequence[str], environ: Mapping[str, str], option: str) -> list[str]:
    """Turn each `-e KEY VALUE`, `-e KEY=VALUE` and `-e KEY` into the single argument `{option}=KEY=VALUE`.

    `-e KEY` takes the value from `environ`. This form applies if the next argument starts with "-" or does not exist.

    Args:
        words: Arguments of a command line.
        environ: The variables for `-e KEY`.
        option: The long option, e.g. "--env".

    Raises:
        InvalidRequest: The name is missing, invalid, or not set in `environ`.
    """
    rest = list(words)
    done: list[str] = []
    while rest:
        word = rest.pop(0)
        if word in _ENV_FLAGS:
            if not rest or rest[0].startswith("-"):
                raise InvalidRequest(f"{word} needs a variable: {word} KEY VALUE, {word} KEY=VALUE or {word} KEY")
            key = rest.pop(0)
        elif word.startswith(("--env=", "--env-vars=")):
            key = word.partition("=")[2]
        elif word.startswith("-e") and not word.startswith("--") and len(word) > 2:
            key = word.removeprefix("-e")
        else:
            done.append(word)
            continue
        if "=" not in key:
            attached = word not in _ENV_FLAGS
            has_value = bool(rest) and not rest[0].startswith("-") and not attached
            key = f"{key}={rest.pop(0) if has_value else _from_shell(key, environ)}"
        name = key.partition("=")[0]
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            # Not the value: it may be a secret.
            raise InvalidRequest(f"-e: {name!r} cannot be the name of a variable")
        done.append(f"{option}={key}")
    return done


def withhold_secrets(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the arguments without the values of secret variables, and those values: `-e HF_TOKEN hf_x` becomes `-e
    HF_TOKEN`.

    The arguments mean the same if the environment contains the secrets. Arguments after "--" stay unchanged.
    """
    end = list(words).index("--") if "--" in words else len(words)
    rest, done = list(words[:end]), list[str]()
    found: dict[str, str] = {}
    while rest:
        word = rest.pop(0)
        if word in _ENV_FLAGS and rest:
            key, separator, value = rest.pop(0).partition("=")
            has_value = not separator and bool(rest) and not rest[0].startswith("-")
            given = [rest.pop(0)] if has_value else []
            if is_secret_name(key) and (separator or given):
                found[key] = value if separator else given[0]
                done += [word, key]
            else:
                done += [word, f"{key}{separator}{value}", *given]
            continue
        flag = next((flag for flag in ("--env=", "-e") if word.startswith(flag) and word not in _ENV_FLAGS), "")
        key, separator, value = word.removeprefix(flag).partition("=")
        if flag and separator and is_secret_name(key) and (flag == "--env=" or not word.startswith("--")):
            found[key] = value
            done.append(f"{flag}{key}")
        else:
            done.append(word)
    return [*done, *words[end:]], found


def _from_shell(name: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise InvalidRequest(
            f"-e {name}: {name} is not set in your environment; give it a value with -e {name}=VALUE "
            "(also for values that start with '-')"
        )
    return environ[name]
