"""Machines of the test server of Google's APIs run their startup scripts, on loopback or in networks of their own."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.google.cloud import Machine
from support.google.machines import RunningMachines, startup_script
from support.google.server import GoogleServer
from support.iris.hosts import network, why_not

pytestmark = pytest.mark.process

NODES = "/v2/projects/p/locations/us-east1-d/nodes"
SCRIPT = f"""
echo booting
{sys.executable} -c '
import os, urllib.request
url = "http://" + os.environ["GCE_METADATA_HOST"] + "/computeMetadata/v1/instance/guest-attributes/iris/phase"
urllib.request.urlopen(urllib.request.Request(url, b"joined", {{"Metadata-Flavor": "Google"}}, method="PUT"))'
exec sleep 600
"""


def create(server: GoogleServer, name: str = "n") -> None:
    metadata = {"startup-script": SCRIPT, "enable-guest-attributes": "TRUE"}
    node = {"acceleratorType": "v5litepod-16", "runtimeVersion": "v2", "metadata": metadata}
    assert server.answer("POST", NODES, {"nodeId": name}, node)[0] == 200
    server.settle()


def test_a_machine_runs_its_startup_script_until_it_is_lost(tmp_path: Path) -> None:
    with GoogleServer() as server, RunningMachines(server, tmp_path) as running:
        create(server)
        machines = server.machines("n")
        for machine in machines:
            machine.metadata.wait_for_guest("iris", "phase", "joined")
            assert machine.output == b"booting\n"
        lost = running.processes[machines[2]]
        server.preempt("n", host=2)
        assert lost.returncode == -9
        assert len(running.processes) == 3
    assert not running.processes


@pytest.mark.soak
@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_machines_have_networks_of_their_own(tmp_path: Path) -> None:
    with network(["google", *(f"vm{number}" for number in range(4))]) as hosts:
        free = [host for name, host in hosts.items() if name != "google"]
        by_address = {host.address: host for host in free}

        def command(machine: Machine, home: Path) -> Sequence[str]:
            return by_address[machine.address].command(startup_script(machine, home))

        def listen(machine: Machine) -> None:
            machine.metadata.listen = lambda: by_address[machine.address].listen("127.0.0.1")
            running.boot(machine)

        google = hosts["google"]
        with (
            GoogleServer(
                addresses=lambda number: free.pop(0).address, listen=lambda: google.listen(google.address)
            ) as server,
            RunningMachines(server, tmp_path, command) as running,
        ):
            server.on_boot = listen
            create(server)
            for machine in server.machines("n"):
                machine.metadata.wait_for_guest("iris", "phase", "joined")
            seen = by_address["10.0.0.3"].run(["curl", "-s", f"{server.address}{NODES}"])
            ends = json.loads(seen.stdout)["nodes"][0]["networkEndpoints"]
            assert [end["ipAddress"] for end in ends] == list(by_address)
