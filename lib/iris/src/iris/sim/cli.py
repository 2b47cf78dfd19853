"""`python -m iris.sim`: a workload on a fleet; or, for the fault simulation, one seed (`replay`) or many (`sweep`)."""

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence

from iris.sim.run import run_seed
from iris.sim.scenario import make_preemptions, make_scenario
from iris.sim.trace import SeedReport
from iris.sim.workload.cli import run_workload
from rigging.errors import MarinError

_EXIT_BROKEN = 1
_EXIT_USAGE = 2


def main(arguments: Sequence[str]) -> int:
    """Run a command line; return the exit code: 0 success, 1 an invariant was violated, 2 bad input."""
    try:
        if not arguments or arguments[0] not in ("replay", "sweep"):
            return run_workload(arguments)
        options = _parser().parse_args(arguments)
        code: int = options.run(options)
    except MarinError as error:
        print(f"iris.sim: {error}", file=sys.stderr)
        return _EXIT_USAGE
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m iris.sim", description="Faults that strike the real controller.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    replay = commands.add_parser("replay", help="run one seed of the fault simulation and say what came of it")
    replay.add_argument("--seed", type=int, required=True)
    replay.add_argument("--trace", action="store_true", help="show every line of what happens")
    replay.add_argument("--json", action="store_true", help="the report as JSON")
    replay.add_argument("--preemptions", action="store_true", help="a gang that is preempted 200 times, with notices")
    replay.set_defaults(run=_replay)
    sweep = commands.add_parser("sweep", help="run many seeds of the fault simulation")
    sweep.add_argument("--seeds", type=int, default=200, help="how many")
    sweep.add_argument("--start", type=int, default=0, help="the first one")
    sweep.set_defaults(run=_sweep)
    return parser


def _replay(options: argparse.Namespace) -> int:
    logging.disable(logging.CRITICAL)
    report = run_seed(
        options.seed, _say if options.trace else None, make_preemptions if options.preemptions else make_scenario
    )
    if options.json:
        fields = {name: getattr(report, name) for name in report.__dataclass_fields__ if name != "tail"}
        print(json.dumps(fields))
    else:
        print(_line(report))
        for violation in report.violations:
            print(f"  {violation}")
    return _EXIT_BROKEN if report.violations else 0


def _sweep(options: argparse.Namespace) -> int:
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    broken: list[SeedReport] = []
    for count, seed in enumerate(range(options.start, options.start + options.seeds), 1):
        report = run_seed(seed)
        if report.violations:
            broken.append(report)
            print(f"seed {seed}: {report.violations[0]}\n  {report.command}", flush=True)
        if count % 50 == 0:
            _say(f"{count} of {options.seeds} seeds, {len(broken)} broken, {time.monotonic() - began:.0f} s")
    print(f"{options.seeds} seeds, {len(broken)} broken, {time.monotonic() - began:.1f} s")
    return _EXIT_BROKEN if broken else 0


def _line(report: SeedReport) -> str:
    verdict = f"{len(report.violations)} promises broken" if report.violations else "every promise held"
    return (
        f"seed {report.seed}: {verdict}; {report.jobs} jobs, {report.starts} runs, {report.lives} lives of the "
        f"controller, {report.commits} commits, {report.checks} checks of the invariants, {report.end_s:.0f} s; "
        f"{report.digest}"
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
