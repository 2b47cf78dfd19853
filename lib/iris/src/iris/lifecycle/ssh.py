"""Returns command lines of OpenSSH's client for a cluster's hosts. Pure."""

from collections.abc import Sequence

from iris.autoscale.manual.claims import split_address
from iris.autoscale.rules import SshSettings


def ssh_command(settings: SshSettings, host: str, words: Sequence[str] = (), options: Sequence[str] = ()) -> list[str]:
    """Return the command that connects to a host.

    Args:
        settings: The cluster file's `defaults.ssh`.
        host: The address, `host` or `host:port`.
        words: The remote command; empty for a shell.
        options: Further options of ssh.
    """
    host, port = split_address(host, settings.port)
    given = {
        "-l": settings.user,
        "-i": settings.key_file,
        "-p": str(port) if port != 22 else "",
        "-o": f"UserKnownHostsFile={settings.known_hosts_file}" if settings.known_hosts_file else "",
    }
    chosen = [word for option, value in given.items() if value for word in (option, value)]
    return ["ssh", "-o", f"ConnectTimeout={settings.connect_timeout_s:.0f}", *chosen, *options, host, *words]


def tunnel_command(settings: SshSettings, host: str, port: int) -> list[str]:
    """Return the command that forwards a port of this machine to the same port of a host's loopback, until it ends."""
    forward = ["-N", "-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{port}:127.0.0.1:{port}"]
    return ssh_command(settings, host, options=forward)
