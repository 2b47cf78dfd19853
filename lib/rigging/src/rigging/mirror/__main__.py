"""Mirror files and directories into the local prefix ahead of use, drop local copies, and undo removals.

usage: python -m rigging.mirror PATH... [--dry-run] [--budget-gb GB]
       python -m rigging.mirror (--drop | --undelete) PATH... [--dry-run]

Exit codes: 0 everything exists locally; 1 a copy failed; 2 wrong arguments or paths; 3 the transfer budget is too
small.
"""

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

from rigging.clock import SYSTEM_CLOCK, SleepingClock
from rigging.errors import InvalidRequest, MarinError
from rigging.filesystem.budget import TransferBudgetExceeded, current_budget, gib, mirror_budget
from rigging.mirror.local_copies import drop, drop_plan, removals, undelete
from rigging.mirror.prefetch import PrefetchPlan, Progress, mirror_plan, mirror_prefetch
from rigging.timing import RateLimiter

_REPORT_SECONDS = 1.0


def main(
    arguments: Sequence[str] | None = None,
    *,
    plan: Callable[..., PrefetchPlan] = mirror_plan,
    prefetch: Callable[..., PrefetchPlan] = mirror_prefetch,
) -> int:
    """Run the command and return the exit code.

    Args:
        arguments: The command-line arguments; None for this process's.
        plan: Replaces `mirror_plan` in tests.
        prefetch: Replaces `mirror_prefetch` in tests.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.budget_gb is not None and (options.drop or options.undelete):
        parser.error("--budget-gb: --drop and --undelete move no bytes")
    try:
        if options.undelete:
            return _undelete(options.paths, options.dry_run)
        if options.drop:
            return _drop(options.paths, options.dry_run)
        with contextlib.nullcontext() if options.budget_gb is None else mirror_budget(options.budget_gb):
            if options.dry_run:
                _print_plan(plan(*options.paths))
            else:
                _run(options.paths, prefetch)
            return 0
    except TransferBudgetExceeded as error:
        print(f"rigging.mirror: {error}; or --budget-gb here", file=sys.stderr)
        return 3
    except (InvalidRequest, FileNotFoundError) as error:
        print(f"rigging.mirror: {error}", file=sys.stderr)
        return 2
    except (MarinError, OSError) as error:
        print(f"rigging.mirror: {error}", file=sys.stderr)
        return 1


def _run(paths: Sequence[str], prefetch: Callable[..., PrefetchPlan]) -> None:
    printer = Printer(sys.stderr)
    plan = prefetch(*paths, progress=printer.show)
    printer.finish()
    print(f"{len(plan.files)} files copied ({gib(plan.bytes_total)}), {plan.present} were there; {_budget_left()}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rigging.mirror", description="Mirror files ahead of their use, drop copies, undelete."
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="file or directory, relative to the prefix or in full")
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--drop", action="store_true", help="remove local copies of files that another region has")
    instead.add_argument("--undelete", action="store_true", help="restore access to files that were removed here")
    parser.add_argument("--budget-gb", type=float, metavar="GB", help="transfer budget instead of the environment's")
    return parser


def _undelete(paths: Sequence[str], is_dry_run: bool) -> int:
    found = removals(*paths) if is_dry_run else undelete(*paths)
    for removal in found:
        print(f"{removal.path}  removed at {removal.removed_at} by {removal.removed_by}")
    print(f"{len(found)} files {'would be' if is_dry_run else 'are'} visible again")
    return 0


def _drop(paths: Sequence[str], is_dry_run: bool) -> int:
    plan = drop_plan(*paths) if is_dry_run else drop(*paths)
    print(f"{len(plan.files)} files {'would be ' if is_dry_run else ''}dropped ({gib(sum(plan.files.values()))})")
    if plan.kept:
        print(f"{len(plan.kept)} kept, because no other region has the same: {', '.join(plan.kept[:5])}")
    return 0


def _print_plan(plan: PrefetchPlan) -> None:
    for request in plan.files:
        print(f"{request.version.size:>15,}  {request.source_url}")
    print(
        f"would copy {len(plan.files)} files, {gib(plan.bytes_total)} ({plan.bytes_total} bytes), "
        f"into {plan.destination.prefix.url}; {plan.present} are there"
    )
    by_source: dict[str, int] = {}
    for request in plan.files:
        by_source[request.source.prefix.url] = by_source.get(request.source.prefix.url, 0) + request.version.size
    for source, count in sorted(by_source.items()):
        print(f"  from {source}: {gib(count)}")
    fits = "which is enough" if plan.bytes_charged <= current_budget().bytes_left else "which is NOT enough"
    print(f"{gib(plan.bytes_charged)} would be charged; {_budget_left()}, {fits}")


def _budget_left() -> str:
    budget = current_budget()
    return f"budget left: {gib(budget.bytes_left)} of {gib(budget.limit_bytes)}"


class Printer:
    """Print progress: a rewritten line on a terminal, else a line at intervals."""

    def __init__(self, stream: TextIO, clock: SleepingClock = SYSTEM_CLOCK) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._limiter = RateLimiter(_REPORT_SECONDS, clock=clock)
        self._limiter.mark_run()

    def show(self, progress: Progress) -> None:
        """Print the progress, at most once a second."""
        if not self._limiter.should_run():
            return
        line = (
            f"{progress.files_done}/{progress.files_total} files, "
            f"{gib(progress.bytes_done)} of {gib(progress.bytes_total)}"
        )
        print(f"\r\x1b[K{line}" if self._terminal else line, end="" if self._terminal else "\n", file=self._stream)

    def finish(self) -> None:
        """Clear the line."""
        if self._terminal:
            print("\r\x1b[K", end="", file=self._stream)


if __name__ == "__main__":
    sys.exit(main())
