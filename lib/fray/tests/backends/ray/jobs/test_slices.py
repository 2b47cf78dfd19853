"""The hosts of a slice in the order in which TPU runtimes count them."""

from fray.backends.ray.jobs.slices import WORKER_LABEL, host_order


def test_replicas_are_in_the_order_of_the_hosts() -> None:
    nodes = [{"NodeID": name, "Labels": {WORKER_LABEL: str(number)}} for number, name in enumerate("abcd")]
    assert host_order({0: "c", 1: "d", 2: "a", 3: "b"}, nodes, "a") == [2, 3, 0, 1]
    many = [{"NodeID": f"n{number}", "Labels": {WORKER_LABEL: str(number)}} for number in range(12)]
    assert host_order({11 - number: f"n{number}" for number in range(12)}, many, "n0") == list(range(11, -1, -1))


def test_where_ray_does_not_tell_the_first_host_is_first() -> None:
    nodes = [{"NodeID": "a"}, {"NodeID": "b", "Labels": {}}, {"NodeID": "c", "Labels": {WORKER_LABEL: ""}}]
    assert host_order({0: "c", 1: "b", 2: "a"}, nodes, "a") == [2, 0, 1]
