"""Measure how many small random mistakes the fast tests of the same package detect."""

import argparse
import hashlib
import json
import os
import queue
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.mutation.contexts import (
    Record,
    changed_modules,
    collect,
    is_isolated,
    record_package,
    with_unrecorded,
    without_vanished,
)
from tools.mutation.report import indented, lost_text, summary, text
from tools.mutation.sample import PACKAGES, same_places, sample
from tools.mutation.sandbox import Sandbox
from tools.mutation.sites import Mutation
from tools.mutation.trial import Trial, read_trials, run_trial

ROOT = Path(__file__).parents[2]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, default=1, help="random seed of the sample (default 1)")
    add("--count", type=int, default=200, help="number of mistakes (default 200)")
    add("--places", type=Path, metavar="REPORT", help="the mistakes of an earlier report, instead of a new sample")
    add("--packages", default=",".join(PACKAGES), help="packages or parts, e.g. iris.sched (default %(default)s)")
    add("--list", action="store_true", help="show the sample and run nothing")
    add("--record", action="store_true", help="record again which code each test executes (takes minutes)")
    add("--no-record", action="store_true", help="do not record changed tests; try all tests near a mistake")
    add("--jobs", type=int, default=1, help="number of concurrent copies (default 1)")
    add("--budget", type=float, default=60.0, help="maximum seconds of tests per mistake (default 60)")
    add("--report", type=Path, help="JSON file to write (default: in the scratch folder)")
    name = f"mutation-{os.getuid()}-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]}"
    scratch = Path(tempfile.gettempdir()) / name
    add(
        "--scratch",
        type=Path,
        default=scratch,
        help="folder for copies, records, unfinished runs (default %(default)s)",
    )
    options = parser.parse_args(arguments)
    for name in ("count", "jobs"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: at least 1")
    return options


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    packages = [name for name in options.packages.split(",") if name]
    if options.list:
        show(choose(ROOT, packages, options))
        return 0
    if not is_isolated():
        print("mistakes are tried in separate namespaces, but this system has no `unshare`", file=sys.stderr)
        return 2
    options.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    sandboxes = [Sandbox(ROOT, options.scratch / f"copy-{number}") for number in range(options.jobs)]
    for sandbox in sandboxes:
        sandbox.prepare()
    chosen = choose(sandboxes[0].tree, packages, options)
    tops = dict.fromkeys(Path(mutation.file).parts[1] for mutation in chosen)
    records = {top: recorded(options.scratch, sandboxes[0], top, options) for top in tops}
    origin = f"places-{options.places.stem}" if options.places else f"seed-{options.seed}"
    log = options.scratch / f"{origin}-{'-'.join(packages)}.jsonl"
    trials = run(chosen, sandboxes, records, log, options.budget)
    report = options.report or log.with_suffix(".json")
    report.write_text(json.dumps(summary(trials, options.seed), indent=1) + "\n")
    print(f"\n{text(trials)}")
    if options.places:
        print(lost_text(json.loads(options.places.read_text())["trials"], trials))
    print(f"report: {report}")
    return 0


def choose(root: Path, packages: Sequence[str], options: argparse.Namespace) -> list[Mutation]:
    """Return a sample, or the mistakes of a report that still exist, with their number."""
    if options.places is None:
        return sample(root, packages, options.seed, options.count)
    trials = json.loads(options.places.read_text())["trials"]
    again = same_places(root, packages, trials)
    print(f"{len(again)} of the {len(trials)} places of {options.places} still exist", flush=True)
    return again


def show(chosen: Sequence[Mutation]) -> None:
    for mutation in chosen:
        print(f"{mutation.file}:{mutation.line} {mutation.operator}")
        print(indented(mutation.diff((ROOT / mutation.file).read_bytes())))


def recorded(scratch: Path, sandbox: Sandbox, package: str, options: argparse.Namespace) -> Record:
    """Return the code that the tests of a package execute, from the record, updated for changed test files."""
    path = scratch / f"record-{package}.json"
    if options.record or not path.exists():
        print(f"recording the code that the fast tests of {package} execute", flush=True)
        record = record_package(sandbox, package)
        record.save(path)
    record = without_vanished(Record.load(path), sandbox.tree)
    changed = changed_modules(record, sandbox.tree, package)
    if changed and options.no_record:
        record = with_unrecorded(record, collect(sandbox, changed))
    elif changed:
        print(f"recording {len(changed)} new or changed files of tests of {package}", flush=True)
        record = record.replaced(changed, record_package(sandbox, package, changed))
        record.save(path)
    print(f"{package}: {len(record.tests)} tests take part, {len(record.failed)} fail here", flush=True)
    return record


def run(
    chosen: Sequence[Mutation], sandboxes: Sequence[Sandbox], records: dict[str, Record], log: Path, budget_s: float
) -> list[Trial]:
    """Try every mistake that an earlier run with this log has not tried. Write each result immediately."""
    known = read_trials(log)
    free: queue.Queue[Sandbox] = queue.Queue()
    for sandbox in sandboxes:
        free.put(sandbox)

    def one(mutation: Mutation) -> Trial:
        sandbox = free.get()
        try:
            found = known.get(mutation.key((sandbox.tree / mutation.file).read_bytes()))
            return found or run_trial(sandbox, records[Path(mutation.file).parts[1]], mutation, budget_s)
        finally:
            free.put(sandbox)

    trials: list[Trial] = []
    with ThreadPoolExecutor(len(sandboxes)) as pool, log.open("a") as lines:
        for number, trial in enumerate(pool.map(one, chosen), 1):
            trials.append(trial)
            if trial.key not in known:
                lines.write(trial.to_json() + "\n")
                lines.flush()
            place = f"{trial.file}:{trial.line}"
            print(f"[{number}/{len(chosen)}] {trial.verdict} {place} {trial.operator} {trial.test}", flush=True)
    return trials


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as problem:
        sys.exit(f"python -m tools.mutation: {problem}")
