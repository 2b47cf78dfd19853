"""`iris cluster validate`."""

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
