"""`python -m iris.sim`: simulates how a fleet handles a workload."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from iris.sim.workload.distributions import draw_workload
from iris.sim.workload.fleet import fleet_of_options, read_fleet
from iris.sim.workload.plot import plot
from iris.sim.workload.report import figures_of, table
from iris.sim.workload.simulate import simulate
from iris.sim.workload.trace_file import read_trace
from rigging.errors import InvalidRequest

_EPILOG = """
Faults: `python -m iris.sim replay --seed N` and `python -m iris.sim sweep` strike the real controller with crashes,
partitions and lost messages. docs/simulation.md describes the files.
"""


def run_workload(arguments: Sequence[str]) -> int:
    """Run a command line. Raises InvalidRequest for bad input, with file, line and value."""
    options = _parser().parse_args(arguments)
    if (options.trace is None) == (options.workload is None):
        raise InvalidRequest("give the jobs by one of --trace FILE.csv and --workload FILE.yaml")
    if (options.fleet_file is None) == (not options.fleet):
        raise InvalidRequest("give the hosts by one of --fleet-file FILE.yaml and --fleet [SLICESx]HOSTS:cpu=...")
    machines = fleet_of_options(options.fleet) if options.fleet else read_fleet(options.fleet_file)
    arrivals = read_trace(options.trace) if options.trace else draw_workload(options.workload, options.seed)
    until_s = None if options.hours is None else options.hours * 3600
    outcome = simulate(arrivals, machines, options.stop_seconds, until_s, None if options.quiet else _say)
    figures = figures_of(outcome)
    print(json.dumps(figures.to_json(), indent=2) if options.json else table(figures, outcome))
    if options.plot is not None:
        plot(outcome, options.plot)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m iris.sim",
        description="Run a workload on a fleet that does not exist, with the real scheduler, and report what it did.",
        epilog=_EPILOG,
    )
    parser.add_argument("--trace", type=Path, metavar="FILE.csv", help="the jobs, one a line")
    parser.add_argument("--workload", type=Path, metavar="FILE.yaml", help="the jobs, by distributions")
    parser.add_argument("--seed", type=int, default=0, help="of the distributions (default: 0)")
    parser.add_argument("--fleet-file", type=Path, metavar="FILE.yaml", help="the hosts, by groups")
    parser.add_argument(
        "--fleet",
        action="append",
        default=[],
        metavar="[SLICESx]HOSTS:cpu=N,...",
        help="a group of hosts, e.g. '10:cpu=32,memory_gib=128'; may be repeated",
    )
    parser.add_argument("--hours", type=_hours, help="end after so many hours, whatever still runs")
    parser.add_argument("--stop-seconds", type=float, default=5.0, help="a preempted task takes so long to leave")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw a picture, too (needs marin-iris[plot])")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    return parser


def _hours(text: str) -> float:
    hours = float(text)
    if not hours > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return hours


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
