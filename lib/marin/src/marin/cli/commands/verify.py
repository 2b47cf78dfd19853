"""`marin verify`: rerun attested steps and compare their outputs."""

from __future__ import annotations

import functools
import json
import math
import secrets
import shlex
from collections import Counter
from typing import Any, Final

import click

from marin.cli import exit_codes
from marin.cli.context import CliContext, pass_context
from marin.cli.options import NAME, json_option
from marin.cli.output import Progress, echo_json, echo_painted, say
from rigging.errors import InvalidRequest, NotFound

_COLOURS: Final = {"equal": "green", "close": "green", "different": "red", "failed": "red"}


class ToleranceType(click.types.StringParamType):
    """A tolerance: a number, or `GLOB=NUMBER` for files of that `{step name}/{file name}`."""

    name = "tolerance"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the glob and the number."""
        if isinstance(value, tuple):
            return value
        glob, _, number = value.rpartition("=")
        try:
            tolerance = float(number)
        except ValueError:
            tolerance = math.nan
        if not 0 <= tolerance < math.inf:
            self.fail(f"{value!r}: give a number from 0, or GLOB=NUMBER, such as 'model/*=0.01'.", param, ctx)
        return glob or "*", tolerance


@click.command()
@click.argument("file", type=NAME)
@click.argument("script", required=False, type=NAME)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="Only N steps, chosen at random.")
@click.option("--seed", type=int, metavar="N", help="Repeat the choice of an earlier --sample.")
@click.option(
    "--tolerance", "tolerances", type=ToleranceType(), multiple=True, metavar="[GLOB=]NUMBER",
    help="Allowed difference of two numbers, absolute up to 1 and relative above; the last GLOB wins.",
)  # fmt: skip
@click.option("--prefix", type=NAME, metavar="PREFIX", help="Current storage root of the attested outputs.")
@json_option
@pass_context
def verify(
    context: CliContext,
    file: str,
    script: str | None,
    arguments: tuple[str, ...],
    sample: int | None,
    seed: int | None,
    tolerances: tuple[tuple[str, float], ...],
    prefix: str | None,
    as_json: bool,
) -> int:
    """Rerun the steps of the attestation FILE below a temporary prefix, and compare their outputs with it.

    SCRIPT (a path, or a module's dotted name) and its ARGUMENTS are those of the attested run; give others after --.
    Run the command in the directory where the run started.
    """
    from marin.attested.attestation import parse
    from marin.attested.rerun import Rerun
    from marin.attested.verification import fresh_prefix, remove, surroundings_notes
    from marin.attested.verification import verify as verify_steps
    from marin.cli.reading.script import load_script
    from marin.execution.report.rerun import marin_command
    from marin.recorded.reading.places import storage_root
    from rigging.filesystem import read_bytes_or_none

    attestation = parse(_json_in(file, read_bytes_or_none(file)), file)
    words = [script, *arguments] if script is not None else shlex.split(attestation.command or "")
    if not words:
        told = f"{marin_command()} verify {file} SCRIPT"
        raise InvalidRequest(f"{file}: the run's script is not recorded; name the script: {told}")
    root = storage_root(attestation.prefix if prefix is None else prefix)
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    fresh = fresh_prefix(root)
    say(f"rerunning {shlex.join(words)} below {fresh}" + ("" if sample is None else f" (--seed {seed})"))
    for note in surroundings_notes(attestation):
        say(note)
    progress = Progress(context.now, "steps compared")
    verdicts = verify_steps(
        attestation,
        Rerun(attestation, root, fresh, sample, seed),
        functools.partial(load_script, words[0], words[1:]),
        tolerances,
        progress.tell,
    )
    is_equal = not any(_COLOURS[verdict.status] == "red" for verdict in verdicts)
    if as_json:
        record = {"run": attestation.run, "equal": is_equal, "seed": None if sample is None else seed}
        echo_json({**record, "steps": [verdict.to_json() for verdict in verdicts]})
    else:
        echo_painted([(text, _COLOURS[status]) for verdict in verdicts for text, status in verdict.lines()])
    counts = Counter(str(verdict.status) for verdict in verdicts)
    rest = len(attestation.steps) - len(verdicts)
    said = ", ".join(f"{counts[status]} {status}" for status in _COLOURS) + (
        f"; {rest} step(s) not run" if rest else ""
    )
    if is_equal:
        remove(fresh)
        say(said)
        return exit_codes.OK
    say(f"{said}; the new outputs are kept in {fresh}")
    return exit_codes.FAILURE


def _json_in(file: str, content: bytes | None) -> Any:
    if content is None:
        raise NotFound(f"no file {file}")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{file} is not JSON: {error}") from None
