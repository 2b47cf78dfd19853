"""The Ray backend under the contract: a real Ray cluster in a separate process namespace, on loopback.

Run as a module with the cluster's directory, it starts and stops the nodes inside that namespace: it reads commands as
JSON lines and answers each. When its input ends, it ends the namespace's processes and removes the directory. Ray may
abort the process that uses a cluster without a message, for example when its own server has died. FRAY_RAY_LOGS names a
directory that then keeps the logs, including that process's.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from fray.backends.ray.capabilities import CAPABILITIES
from fray.protocols import Client
from fray.testing.harness import BackendHarness
from fray.testing.ray_node_start import limit_dashboard, wait_for_slow_nodes
from fray.testing.ray_ports import LOOPBACK, free_ports, is_free, not_tested, worker_ports
from rigging.errors import Conflict

NAMESPACED = ("unshare", "--fork", "--pid", "--kill-child", "--mount-proc")
_OBJECT_STORE_BYTES = 400 << 20
# Logical, as are the CPUs: many small jobs shall run at once.
_MEMORY_BYTES = 256 << 30
_CPUS = 16
_START_ATTEMPTS = 3
_LOOK_SECONDS = 0.05
LOGS_VARIABLE = "FRAY_RAY_LOGS"

ENVIRONMENT = {
    # Ray takes a machine where clusters are not offered for one that is to use loopback only.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_DEDUP_LOGS": "0",
    # What `print` is, is not Ray's to change in a process that other tests use.
    "RAY_TQDM_PATCH_PRINT": "0",
    "FRAY_RAY_ELASTIC": "0",
}


class RayCluster:
    """A Ray cluster whose nodes are processes in a separate namespace. All of them end with this process.

    Args:
        storage: The folder for its head's state, so that a new head can continue; empty keeps it in memory.
    """

    def __init__(
        self,
        cpus: int = _CPUS,
        client_server: bool = False,
        jobs_api: bool = False,
        token: str = "",
        storage: str = "",
    ) -> None:
        self._cpus = cpus
        self._environment = {
            **ENVIRONMENT,
            **(_token_environment(token) if token else {}),
            **({"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": storage} if storage else {}),
        }
        self._head_ports: list[int] = []
        self._client_server = client_server
        self._jobs_api = jobs_api
        self._process: subprocess.Popen[str] | None = None
        self._directory: str | None = None
        self._before: dict[str, str | None] = {}
        self.address = ""
        self.client_address = ""
        self.jobs_address = ""

    def start(self, nodes: Mapping[str, Mapping[str, float]] | None = None) -> None:
        """Start the head node and make `ray.init()` in this process find it. Skip the test if there is no unshare.

        Args:
            nodes: Further nodes by name, with their resources.
        """
        need_namespaces()
        for name, value in self._environment.items():
            self._set(name, value)
        # Ray reads them when it is imported.
        import ray

        util: Any = ray.util
        if (seen := util.get_node_ip_address()) != LOOPBACK:
            raise Conflict(
                f"Ray was imported before its test cluster started, and would look at {seen} instead of {LOOPBACK}; "
                "choose it by `--fray-backend ray`, or call fray.testing.ray_harness.RayHarness.prepare() in a conftest"
            )
        # A process has one cluster at a time: without this its clients would go on using the one before.
        ray.shutdown()
        for attempt in range(_START_ATTEMPTS):
            try:
                self._start_head()
                for name, resources in (nodes or {}).items():
                    self.add_node(name, resources)
                break
            except RuntimeError:
                # A raylet ends itself when its agent takes more than 15 s to load, as it may on a busy machine; Ray has
                # no setting for that.
                self._end_processes()
                if attempt == _START_ATTEMPTS - 1:
                    raise
        self._set("RAY_ADDRESS", self.address)

    @contextlib.contextmanager
    def running(self, nodes: Mapping[str, Mapping[str, float]] | None = None) -> Iterator["RayCluster"]:
        """The running cluster (see `start`). At the end this process disconnects and the cluster is stopped."""
        try:
            self.start(nodes)
            yield self
        finally:
            import ray

            ray.shutdown()
            self.stop()

    def _start_head(self) -> None:
        if self._directory is None:
            # Not below pytest's directory: the paths of Unix sockets have room for 107 bytes.
            self._directory = tempfile.mkdtemp(prefix="fray-ray-")
            os.mkdir(os.path.join(self._directory, "ray"))
            self._head_ports = free_ports(4)
        with open(os.path.join(self._directory, "cluster.log"), "w") as log:
            self._process = subprocess.Popen(
                [*NAMESPACED, sys.executable, "-m", "fray.testing.ray_harness", self._directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                # Ray notes the cluster's address there, for `ray.init()` of all users: not where they look for it, and
                # where the folder exists.
                env={**os.environ, "RAY_TMPDIR": self._directory},
            )
        port, client_port, dashboard_port, agent_port = self._head_ports
        head: dict[str, Any] = {
            **worker_ports(),
            "num_cpus": self._cpus,
            "memory": _MEMORY_BYTES,
            "object_store_memory": _OBJECT_STORE_BYTES,
            "include_dashboard": self._jobs_api,
            "include_log_monitor": False,
            # There is no autoscaler.
            "no_monitor": True,
            "gcs_server_port": port,
            "temp_dir": os.path.join(self._directory, "ray"),
        }
        if self._client_server:
            head["ray_client_server_port"] = client_port
            self.client_address = f"{LOOPBACK}:{client_port}"
        if self._jobs_api:
            # Ray's own for the agent, which starts jobs, is 52365. When anything has it (another cluster, a connection
            # that was given the number), the agent gives up after three seconds, for good and without a word.
            head["dashboard_agent_listen_port"] = agent_port
            head |= {"dashboard_host": LOOPBACK, "dashboard_port": dashboard_port}
        answer = self._ask({"head": head})
        self.address, self.jobs_address = answer["address"], answer["jobs_address"]

    def add_node(self, name: str, resources: Mapping[str, float], cpus: int = 4) -> None:
        """Start another node.

        Args:
            name: The name, for `kill_node`.
            resources: Its custom resources.
            cpus: Its number of processors.
        """
        node = {
            **worker_ports(),
            "num_cpus": cpus,
            "memory": _MEMORY_BYTES,
            "object_store_memory": 100 << 20,
            "include_log_monitor": False,
            "resources": dict(resources),
        }
        self._ask({"add": name, "node": node})

    def kill_node(self, name: str) -> None:
        """Kill the processes of a node."""
        self._ask({"kill": name})

    def replace_head(self) -> None:
        """Kill all processes of the cluster, like a failed machine, and start a new head at the same ports."""
        assert self._process is not None, "the cluster was not started"
        self._process.kill()
        self._process.wait()
        # What it has started ends with it, and a little after it.
        while not all(map(is_free, self._head_ports)):
            time.sleep(_LOOK_SECONDS)
        self._start_head()

    def stop(self) -> None:
        """End the namespace and all processes of the cluster."""
        self._end_processes()
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def _end_processes(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write("{}\n")
            for stream in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _set(self, name: str, value: str) -> None:
        self._before.setdefault(name, os.environ.get(name))
        os.environ[name] = value

    def _ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process is not None, "the cluster was not started"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._directory is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            log = Path(self._directory, "cluster.log").read_text()
            raise RuntimeError(f"the Ray cluster did not survive {command}:\n{log[-4000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class RayHarness(BackendHarness):
    """One node with a given number of logical CPUs.

    Args:
        cpus: The number of CPUs.
        client_server: Also start a Ray client server.

    Attributes:
        cluster: The cluster of that node, for tests that need Ray alone.
    """

    name = "ray"
    capabilities = CAPABILITIES

    def __init__(self, cpus: int = _CPUS, client_server: bool = True) -> None:
        self._cpus = cpus
        self.cluster = RayCluster(cpus, client_server=client_server)

    @property
    def cpus(self) -> int:
        return self._cpus

    @staticmethod
    def prepare() -> None:
        """Set the variables that Ray reads on import."""
        for name, value in ENVIRONMENT.items():
            if name.startswith("RAY_"):
                os.environ.setdefault(name, value)

    def start(self, state_dir: Path) -> None:  # noqa: ARG002 - Ray's sockets need a shorter path
        """Start the cluster."""
        self.cluster.start()

    def make_client(self) -> Client:
        from fray.backends.ray import RayClient

        return RayClient.connect()

    @property
    def spec(self) -> str:
        return "ray"

    def leftovers(self) -> Sequence[str]:
        """Return actors, placement groups and CPUs in use, and threads that wait for jobs."""
        import threading

        from ray.util import list_named_actors
        from ray.util.placement_group import placement_group_table

        from fray.backends.ray import cluster as ray_cluster

        actors = [f"actor {actor['name']}" for actor in list_named_actors(all_namespaces=True)]
        groups = [
            f"placement group {group['name']}"
            for group in placement_group_table().values()
            if group["state"] != "REMOVED"
        ]
        used = ray_cluster.resources().get("CPU", 0) - ray_cluster.free_resources().get("CPU", 0)
        tasks = [f"{used:g} CPUs in use"] if used else []
        threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("fray-")]
        return [*actors, *groups, *tasks, *threads]

    def stop(self) -> None:
        import ray

        ray.shutdown()
        self.cluster.stop()


def _token_environment(token: str) -> dict[str, str]:
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}


def need_namespaces() -> None:
    """Skip the test if processes cannot have their own namespace."""
    try:
        done = subprocess.run([*NAMESPACED, "true"], capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError:
        not_tested("there is no `unshare` here to isolate its processes")
    if done.returncode != 0:
        not_tested(f"cannot create a process namespace: {done.stderr.strip()}")


def _serve(commands: IO[str], answers: IO[str]) -> bool:
    """Operate a cluster by commands from stdin. Return whether the empty command ended them."""
    from ray.cluster_utils import Cluster

    cluster: Any = None
    nodes: dict[str, Any] = {}
    for line in commands:
        command = json.loads(line)
        if not command:
            return True
        if "head" in command:
            limit_dashboard(command["head"]["include_dashboard"])
            wait_for_slow_nodes()
            cluster = Cluster(initialize_head=True, head_node_args=command["head"])
        elif "add" in command:
            nodes[command["add"]] = cluster.add_node(wait=False, **command["node"])
        elif "kill" in command:
            cluster.remove_node(nodes.pop(command["kill"]), allow_graceful=False)
        jobs_address = f"http://{cluster.webui_url}" if cluster.webui_url else ""
        print(json.dumps({"address": cluster.address, "jobs_address": jobs_address}), file=answers, flush=True)
    return False


def _keep_logs(directory: str) -> None:
    place = os.environ.get(LOGS_VARIABLE)
    if not place:
        return
    for logs in Path(directory, "ray").glob("session_*_*/logs"):
        shutil.copytree(logs, Path(place, Path(directory).name), dirs_exist_ok=True, symlinks=True)


def _end_namespace(directory: str) -> None:
    """Kill all other processes of the namespace, whose first process this is, and remove their files."""
    if os.getpid() != 1:
        raise RuntimeError("run this only in a separate process namespace, through RayCluster")
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    # Ray writes to stdout as it likes.
    own_stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if not _serve(sys.stdin, own_stdout):
        _keep_logs(sys.argv[1])
    _end_namespace(sys.argv[1])
    # Ray's exit handlers would wait for processes.
    os._exit(0)
