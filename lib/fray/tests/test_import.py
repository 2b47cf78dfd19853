import subprocess
import sys

import fray


def test_importing_fray_loads_no_backend() -> None:
    code = (
        "import sys, fray; "
        "print([m for m in ('grpc', 'google.protobuf', 'iris', 'ray', 'cloudpickle', 'subprocess', 'fray.backends') "
        "if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_the_same_things_under_their_module_paths() -> None:
    from fray.client import Client, JobFailed, wait_all
    from fray.current_client import current_client, set_current_client
    from fray.local_backend import LocalClient

    assert (Client, JobFailed, wait_all) == (fray.Client, fray.JobFailed, fray.wait_all)
    assert (current_client, set_current_client) == (fray.current_client, fray.set_current_client)
    assert LocalClient is fray.LocalClient
