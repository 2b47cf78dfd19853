"""`cluster generate`: generate a project's cluster files from its settings."""

from pathlib import Path

import click
import yaml

from marin.run.cluster.file.changes import Effect, compare
from marin.run.cluster.file.generate import TEMPLATE_FILE, differing, make_files, write_files
from marin.run.cluster.file.validate import check_cluster_file
from marin.run.cluster_target import parse_cluster_file
from rigging.config_discovery import find_project_root
from rigging.errors import Conflict


@click.command("generate")
@click.option("--dir", "folder", metavar="DIR", help="Folder with clusters.toml (default: the project's infra).")
@click.option("--check", is_flag=True, help="Write nothing; report whether the files are up to date.")
def generate(folder: str | None, check: bool) -> None:
    """Generate the cluster files from clusters.toml and the template beside it."""
    where = Path(folder) if folder else (find_project_root() or Path.cwd()) / "infra"
    files = make_files(where)
    for name, text in files.items():
        check_cluster_file(parse_cluster_file(text, f"{name}, as {TEMPLATE_FILE} makes it,"), name)
    if check:
        different = differing(where, files)
        if different:
            raise Conflict(
                f"{where}: not as they would be made: {', '.join(different)}; run `python -m marin.run.cluster "
                "generate` and remove what no cluster of clusters.toml makes any more"
            )
        click.echo(f"{len(files)} files are up to date")
        return
    for name in differing(where, files):
        for warning in _warnings(where / name, files.get(name)):
            click.echo(f"{name}: {warning}", err=True)
    for name in write_files(where, files):
        click.echo(str(where / name))


def _warnings(path: Path, text: str | None) -> list[str]:
    """Return warnings about applying the file to a running cluster."""
    if text is None:
        return ["no cluster in the settings generates this file; take its cluster down before you remove it"]
    try:
        before = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return []
    if not isinstance(before, dict):
        return []
    changes = [change for change in compare(before, yaml.safe_load(text)) if change.effect == Effect.ORPHANS]
    return [f"{change.text} (if this cluster runs, run `down` with the old file first)" for change in changes]
