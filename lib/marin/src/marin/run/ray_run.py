"""Submit a command as a job to a Ray cluster, show its output, and exit like it.

python -m marin.run.ray_run [OPTIONS] -- python experiments/hello_world.py

The job gets the files of the current directory that git sees, the dependencies of its pyproject.toml, and the variables
named by -e. Its code is imported from the directory itself, the workspace's projects and submodules/*.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from marin.run.submit.options import RunOptions
from rigging.errors import InvalidRequest, MarinError
from rigging.exit_codes import exit_code_of
from rigging.extras import needing
from rigging.process.interrupts import unwrapped_interrupts
from rigging.project import FORWARDED_ENV_VARS
from rigging.project.env_files import read_env_files
from rigging.text.command_words import rewrite_env, split_command, withhold_secrets

ENV_OPTION: Final = "--env-assignment"
_EXAMPLE: Final = "python -m marin.run.ray_run -- python experiments/hello_world.py"
_SUBMISSION_ID: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.:=@+~]{0,199}")
_ENV_HELP: Final = "Variable: -e KEY VALUE, -e KEY=VALUE, or -e KEY to copy yours."
_PROJECT_DEPS_HELP: Final = "Install pyproject's dependencies, or none (default: those that the cluster lacks)."
_ENV_FILE_HELP: Final = "File with lines NAME=value; later files override earlier ones, -e overrides all."
_EPILOG: Final = (
    "Options may be written with _ or with -. MARIN_* of your environment are passed on, and if set "
    + ", ".join(FORWARDED_ENV_VARS)
    + ". Exit codes: the job's own (128 + n for signal n); 2 a wrong option, 3 refused, 4 no such cluster, 5 no "
    "answer, 6 lost contact with the job, 130 after Ctrl-C."
)


class RayRunCommand(click.Command):
    """A command that is split off at the first "--", so that a mistyped option cannot become part of it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before = args[: args.index("--")] if "--" in args else args
        if any(word in ctx.help_option_names for word in before):
            return super().parse_args(ctx, ["--help"])
        try:
            options, ctx.meta["command"] = split_command(args, _EXAMPLE)
            return super().parse_args(ctx, rewrite_env(options, os.environ, ENV_OPTION))
        except InvalidRequest as error:
            raise click.UsageError(str(error), ctx) from None

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]


@click.command(
    "ray_run",
    cls=RayRunCommand,
    epilog=_EPILOG,
    help=(__doc__ or "").replace("\npython -m", "\n\b\npython -m"),
    context_settings={
        "token_normalize_func": lambda text: text.replace("_", "-"),
        "help_option_names": ["-h", "--help"],
    },
)
@click.option("--cluster", metavar="NAME|FILE|URL", help="Cluster (default: RAY_ADDRESS, else http://127.0.0.1:8265).")
@click.option("--address", metavar="URL", help="Same as --cluster URL; the name in `ray job submit`.")
@click.option("--extra", "extras", metavar="GROUP[,GROUP]", multiple=True, help="Optional-dependency group to install.")
@click.option("--pip-deps", metavar="A,B[X,Y]", multiple=True, help="More packages to install, separated by commas.")
@click.option("--project-deps/--no-project-deps", default=None, help=_PROJECT_DEPS_HELP)
@click.option("-e", "--env", "env_shown", metavar="KEY [VALUE]", multiple=True, help=_ENV_HELP)
@click.option(ENV_OPTION, "env", multiple=True, hidden=True)
@click.option("--env-file", "env_files", metavar="FILE", multiple=True, help=_ENV_FILE_HELP)
@click.option("--working-dir", metavar="DIR", default=".", show_default=True, help="Folder to send with the job.")
@click.option("--entrypoint-num-cpus", type=float, help="CPUs reserved for the command's own process.")
@click.option("--entrypoint-num-gpus", type=float, help="GPUs reserved for it.")
@click.option("--entrypoint-memory", metavar="SIZE", help="Memory reserved for it, e.g. 4GB or a number of bytes.")
@click.option(
    "--entrypoint-resources", metavar="JSON", help='Other resources, e.g. \'{"TPU": 4, "TPU-v4-8-head": 1}\'.'
)
@click.option("--submission-id", metavar="ID", help="The job's id (default: a new one).")
@click.option("--no-wait", is_flag=True, help="Return as soon as the job is submitted, and print its id.")
@click.option("--auto-stop", is_flag=True, help="Stop the job whenever this command ends, not only after Ctrl-C.")
@click.option("--dry-run", is_flag=True, help="Print the request, and send nothing.")
@click.option("-v", "--verbose", is_flag=True, help="Show Ray's full answer to a refused request.")
@click.pass_context
def command_line(ctx: click.Context, /, **given: Any) -> None:  # noqa: D103 - its help is the module's docstring
    ctx.exit(run(_options(ctx.meta["command"], given), os.environ))


def run(options: RunOptions, environ: Mapping[str, str]) -> int:
    """Submit the job, follow it, and return the exit code. Raise MarinError."""
    with needing("ray", "ray_run"):
        from marin.run.submit.run_job import submit_and_follow

    return submit_and_follow(options, environ)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    if words is None:
        leave_process_list()
    try:
        with unwrapped_interrupts():
            code = command_line.main(list(words) if words is not None else None, "ray_run", standalone_mode=False)
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("ray_run: interrupted\n")
        return 130
    except MarinError as error:
        sys.stderr.write(f"ray_run: {error}\n")
        return exit_code_of(error)
    return code if isinstance(code, int) else 0


def leave_process_list() -> None:
    """Exec this program again without the secrets in -e arguments, which every user of this machine could see."""
    words, secret_variables = withhold_secrets(sys.argv[1:])
    if secret_variables:
        before = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
        os.execve(sys.executable, [*before, *words], {**os.environ, **secret_variables})


def _options(command: Sequence[str], given: Mapping[str, Any]) -> RunOptions:
    from rigging.project.needs import split_requirements

    if given["cluster"] and given["address"]:
        raise click.UsageError("give --cluster or --address, not both")
    if given["no_wait"] and given["auto_stop"]:
        raise click.UsageError("--auto-stop stops the job when this command ends, which --no-wait makes it do at once")
    working_dir = Path(given["working_dir"])
    if not working_dir.is_dir():
        raise click.UsageError(f"--working-dir {given['working_dir']}: there is no such folder")
    return RunOptions(
        command=tuple(command),
        env=dict(assignment.split("=", 1) for assignment in given["env"]),
        env_of_files=read_env_files(given["env_files"]),
        extras=tuple(name.strip() for text in given["extras"] for name in text.split(",") if name.strip()),
        pip_deps=tuple(_requirement(name) for text in given["pip_deps"] for name in split_requirements(text)),
        project_dependencies=given["project_deps"],
        cluster=given["cluster"] or _as_url(given["address"]),
        working_dir=working_dir,
        wait=not given["no_wait"],
        auto_stop=given["auto_stop"],
        dry_run=given["dry_run"],
        verbose=given["verbose"],
        submission_id=_submission_id(given["submission_id"]),
        num_cpus=_not_negative(given["entrypoint_num_cpus"], "--entrypoint-num-cpus"),
        num_gpus=_not_negative(given["entrypoint_num_gpus"], "--entrypoint-num-gpus"),
        memory=_memory(given["entrypoint_memory"]),
        resources=_resources(given["entrypoint_resources"]),
    )


def _as_url(address: str | None) -> str | None:
    return f"http://{address}" if address and "://" not in address else address


def _submission_id(text: str | None) -> str | None:
    # It becomes part of URLs and of names of files on the head; Ray takes any, and finds some never again.
    if text is not None and not _SUBMISSION_ID.fullmatch(text):
        raise click.UsageError(
            f"--submission-id {text!r}: use at most 200 letters, digits and - _ . : = @ + ~, "
            "beginning with a letter or digit"
        )
    return text


def _requirement(text: str) -> str:
    from rigging.project.needs import check_requirement

    try:
        check_requirement(text)
    except InvalidRequest as error:
        raise click.UsageError(f"--pip-deps {error}") from None
    return text


def _not_negative(number: float | None, option: str) -> float | None:
    if number is not None and not 0 <= number < float("inf"):
        raise click.UsageError(f"{option} {number:g}: give a number from 0")
    return number


def _memory(text: str | None) -> int | None:
    from rigging.text.quantities import check_unit

    if text is None:
        return None
    try:
        return check_unit(text, "--entrypoint-memory")
    except InvalidRequest as error:
        raise click.UsageError(str(error)) from None


def _resources(text: str | None) -> dict[str, float]:
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--entrypoint-resources {text!r} is not JSON: {error}") from None
    if not isinstance(found, dict) or not all(
        isinstance(amount, int | float) and not isinstance(amount, bool) and amount >= 0 for amount in found.values()
    ):
        raise click.UsageError(f"--entrypoint-resources {text!r}: write names and amounts, e.g. '{{\"TPU\": 4}}'")
    return found


if __name__ == "__main__":
    sys.exit(main())
