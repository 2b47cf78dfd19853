"""`iris cluster validate|import`: commands for cluster files."""

from pathlib import Path

import click

from iris.cli import exit_codes
from iris.cli.output import echo, echo_json, say
from rigging.cli.output import complain
from rigging.errors import InvalidRequest


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=False)
@click.option("--schema", is_flag=True, help="Print the JSON schema of cluster files, for editors.")
def validate(file: Path | None, schema: bool) -> int:
    """Check the cluster file FILE, also in the predecessor's format. Contacts no cluster and no cloud.

    Prints all problems, each with its line, or the keys that have no effect. Exit code 2: the file is not valid.
    """
    from iris.local.fleet.file import file_schema, import_file

    if (file is None) is not schema:
        raise click.UsageError("give a FILE, or --schema")
    if file is None:
        echo_json(file_schema())
        return exit_codes.OK
    try:
        found = import_file(file)
    except InvalidRequest as error:
        complain(f"{error}\n")
        return exit_codes.USAGE
    for line in found.left_out:
        say(f"no effect: {line}")
    echo(f"{file} is valid; scale groups: {found.groups}; keys without effect: {len(found.left_out)}")
    return exit_codes.OK


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write here.  [default: stdout]")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def import_command(file: Path, output: Path | None, force: bool) -> None:
    """Convert the cluster file FILE, also in the predecessor's format, to iris's format.

    For every key without an effect here, the command prints its value and the reason.
    """
    from iris.local.fleet.file import import_file
    from rigging.filesystem import write_bytes_atomic

    if output is not None and output.exists() and output.samefile(file):
        raise click.BadParameter(f"{output} is the file itself; name another", param_hint="'--output'")
    if output is not None and output.exists() and not force:
        raise click.BadParameter(
            f"{output} already exists; name another file, or give --force", param_hint="'--output'"
        )
    imported = import_file(file)
    for line in imported.left_out:
        say(f"left out: {line}")
    if output is None:
        echo(imported.text.rstrip("\n"))
    else:
        write_bytes_atomic(str(output), imported.text.encode())
        say(f"wrote {output}; {len(imported.left_out)} keys of {file} have no effect here")
