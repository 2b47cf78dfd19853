"""`marin usage`: the hours of cores and chips that the jobs of a run or of an output used."""

from __future__ import annotations

from typing import Any

import click

from marin.cli.commands.show import run_or_step
from marin.cli.context import CliContext, pass_context
from marin.cli.options import RUN_OR_STEP, json_option, prefix_option, runs_option
from marin.cli.output import Output, say
from marin.recorded.deciding.run_steps import RunStep, steps_of_run
from marin.recorded.reading.places import runs_directory, storage_root
from rigging.errors import InvalidRequest
from rigging.text.hours import hours_table


@click.command()
@click.argument("name", type=RUN_OR_STEP, metavar="RUN|STEP")
@prefix_option
@runs_option
@json_option
@pass_context
def usage(context: CliContext, name: str, prefix: str | None, runs_at: str | None, as_json: bool) -> None:
    """Show what the jobs of a run's steps, or of a step in all runs, used cores and chips for, in hours.

    FRAY_CLIENT names the cluster, which counts the hours: see `iris usage`. Jobs below a core-minute are left out.
    """
    del context
    directory = runs_directory(storage_root(prefix), runs_at)
    steps, since = _steps(prefix, directory, name)
    jobs = {step.job: step.name for step in steps if step.job}
    if not jobs:
        raise InvalidRequest(f"{name}: no step ran as a job of a cluster; `marin show {name}` has processor times")
    sums = _sums(name, jobs, since)
    if not sums:
        say(f"the cluster has no hours of {', '.join(jobs)}: it is another one, or they took less than a core-minute")
    columns, rows = hours_table("step", sums)
    Output(as_json).rows(columns, rows, sums)


def _steps(prefix: str | None, directory: str, name: str) -> tuple[list[RunStep], float]:
    """Return the steps that a name stands for, and the start of their run (0 for all runs)."""
    from marin.recorded.reading.runs import MOST_RUNS, list_runs, read_events, read_info

    found = run_or_step(storage_root(prefix), directory, name, say)
    if not isinstance(found, str):
        return steps_of_run(read_info(directory, found), read_events(directory, found)), found.started or 0.0
    runs = [run for run in list_runs(directory) if run.events is not None][:MOST_RUNS]
    steps = (step for run in runs for step in steps_of_run({}, read_events(directory, run)))
    return [step for step in steps if step.path == found], 0.0


def _sums(name: str, jobs: dict[str, str], since: float) -> list[dict[str, Any]]:
    from fray import current_client
    from fray.client import TellsHours

    client = current_client()
    if not isinstance(client, TellsHours):
        raise InvalidRequest(
            f"{type(client).__name__} does not count the hours of jobs; set FRAY_CLIENT=iris, or iris://HOST:PORT, "
            f"or see the processor times in `marin show {name}`"
        )
    return [
        {"name": jobs[job_id], "job": job_id, "class": used_for, **hours._asdict()}
        for job_id, uses in client.hours_of([*jobs], since).items()
        for used_for, hours in uses.items()
    ]
