"""`marin attest`: record the provenance of a run's outputs, with digests of their files."""

from __future__ import annotations

import json

import click

from marin.cli.context import CliContext, pass_context
from marin.cli.options import NAME, RUN, prefix_option, runs_option
from marin.cli.output import Progress, echo, say
from marin.recorded.deciding.run_names import find_run
from marin.recorded.reading.places import runs_directory, storage_root
from marin.stored_files import shown_names


@click.command()
@click.argument("run", type=RUN, metavar="RUN")
@click.option("-o", "--output", "place", type=NAME, metavar="FILE", help="Write to this file, not to stdout.")
@prefix_option
@runs_option
@pass_context
def attest(context: CliContext, run: str, place: str | None, prefix: str | None, runs_at: str | None) -> None:
    """Print an attestation of RUN as JSON: its steps, the provenance of each output, and digests of all files."""
    from marin.attested.attestation import path_of
    from marin.attested.reading import attest as attest_run
    from marin.recorded.reading.runs import list_runs
    from rigging.filesystem import write_bytes_atomic

    root = storage_root(prefix)
    directory = runs_directory(root, runs_at)
    runs = list_runs(directory)
    found = find_run(runs, run, directory, say)
    progress = Progress(context.now, "files read")
    attestation = attest_run(root, directory, runs, found, context.host, progress.tell)
    text = json.dumps(attestation.to_json(), indent=1)
    if place is None:
        echo(text)
    else:
        write_bytes_atomic(place, f"{text}\n".encode())
    for step in attestation.steps:
        if step.changed:
            say(f"{path_of(step.path, attestation.prefix)}: changed after its step ended: {shown_names(step.changed)}")
    files = [file for step in attestation.steps for file in step.files]
    size = sum(file.bytes for file in files)
    say(f"attested {len(attestation.steps):,} step(s) of run {found.id}: {len(files):,} file(s), {size:,} bytes")
