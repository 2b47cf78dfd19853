"""What a worker makes of messages."""

from iris.rpc import iris_pb2 as pb
from iris.worker.wire import desired_from_wire


def desired(index: int, env: dict[str, str], replicas: int = 9) -> pb.Desired:
    launch = pb.Launch(job_id="/ann/a", replicas=replicas, environment=pb.Environment(env_vars=env))
    return pb.Desired(run=[pb.RunAttempts(launch=launch, attempts=[pb.AttemptRef(task_index=index)])])


def test_attempts_of_an_array_that_come_one_by_one_share_what_they_need_to_start() -> None:
    first, second = (desired_from_wire(desired(index, {"B": "1", "A": "2"})).start[0] for index in (0, 1))
    assert first.launch is second.launch
    assert (first.attempt_id, second.attempt_id) == ("/ann/a/0:0", "/ann/a/1:0")
    other = desired_from_wire(desired(0, {"A": "3"})).start[0]  # the name was used again
    assert dict(other.launch.env_vars) == {"A": "3"}
