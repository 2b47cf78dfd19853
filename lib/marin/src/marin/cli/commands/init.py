"""`marin init`: a new project that runs immediately."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
from importlib import resources
from pathlib import Path

import click

from marin.cli import exit_codes
from marin.cli.context import CliContext, pass_context
from marin.cli.deciding.new_project import TEMPLATES, Installed, project_files, source_of
from marin.cli.options import Name
from marin.cli.output import say
from rigging.errors import AlreadyExists, InvalidRequest

_LIBRARIES = ("marin", "marin-fray", "marin-iris", "marin-rigging")


@click.command()
@click.argument("directory", type=Name(), required=False, default=".", metavar="[DIR]")
@click.option(
    "--template", type=click.Choice(TEMPLATES), default="first", show_default=True, help="The kind of experiment."
)
@click.option("--name", type=Name(), help="The project's name.  [default: DIR's]")
@pass_context
def init(context: CliContext, directory: str, template: str, name: str | None) -> int:
    """Create a project in DIR: an experiment, its test, pyproject.toml, .gitignore, a VS Code launch file.

    The project gets marin from the source of your installation: a package index, a wheel, a repository or a folder.
    Nothing is overwritten: if DIR already has one of these files, the command fails.
    """
    del context
    given = Path(directory).expanduser()
    place = given.resolve()
    if os.path.lexists(given) and not place.is_dir():
        what = "a link to nothing" if given.is_symlink() and not place.exists() else "not a folder"
        raise InvalidRequest(f"{given} is {what}; choose another folder. Nothing was written")
    code = resources.files("marin.cli.templates").joinpath(f"{template}.py").read_text(encoding="utf-8")
    files = project_files(name or place.name, template, code, [_installed(library) for library in _LIBRARIES])
    there = [path for path in files if os.path.lexists(place / path)]
    folders = sorted({str(folder) for path in files for folder in Path(path).parents})
    there += [folder for folder in folders if os.path.lexists(place / folder) and not (place / folder).is_dir()]
    if there:
        raise AlreadyExists(f"{place} already has {', '.join(there)}; choose another folder. Nothing was written")
    for path, text in files.items():
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    say(f"made {', '.join(files)} in {place}")
    where = "" if directory == "." else f"cd {shlex.quote(directory)} && "
    say(f"run it:  {where}uv run python -m experiments.first")
    say(f"as a job: {where}uv run iris job run -- python -m experiments.first")
    say(f"test it: {where}uv run pytest")
    return exit_codes.OK


def _installed(library: str) -> Installed:
    found = importlib.metadata.distribution(library)
    text = found.read_text("direct_url.json")
    return Installed(library, found.version, source_of(json.loads(text) if text else None))
