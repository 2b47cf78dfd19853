"""`iris cluster certs`: the certificates of a controller."""

from pathlib import Path

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import output
from iris.cli.params import DIRECTORY


@click.command()
@click.option(
    "--state-dir",
    type=DIRECTORY,
    metavar="DIR",
    help="The controller's state directory.  [default: that of the config]",
)
@click.option("--make", is_flag=True, help="Create a CA if there is none, before the controller's first start.")
@click.option("--renew", is_flag=True, help="Create a new server certificate. Tokens and workers are unaffected.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def certs(context: CliContext, state_dir: Path | None, make: bool, renew: bool, as_json: bool) -> None:
    """Show the CA and server certificates of a controller.

    `iris cluster controller serve` creates them at its first start, and renews the server certificate itself. Tokens
    pin the CA: when you move a controller, also move the directory `tls`, and keep ca-key.pem private.
    """
    from iris.local.standalone import controller_certificates

    place, found = controller_certificates(context.config_path(), state_dir=state_dir, make=make, renew=renew)
    until = found.expires_at.isoformat(timespec="seconds")
    lines = [
        f"CA:      {place / 'ca.pem'} (sha256 {found.ca_sha256})",
        f"server:  {place / 'server.pem'}, good until {until}",
    ]
    output(as_json).record(lines, {"directory": str(place), "ca_sha256": found.ca_sha256, "expires_at": until})
