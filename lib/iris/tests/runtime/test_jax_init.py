"""Where the first task of a JAX program tells the others to come."""

import socket

from iris.runtime.jax_init import free_port, own_host


def test_the_workers_word_counts_and_a_port_that_is_taken_is_not_shared() -> None:
    assert own_host({"IRIS_ACTOR_HOST": "10.0.0.7"}) == "10.0.0.7"
    assert own_host({}) == socket.gethostbyname(socket.gethostname())
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        chosen = free_port("127.0.0.1", taken)
        assert chosen != taken
        assert chosen > 0
    assert free_port("127.0.0.1", taken) == taken
    assert free_port("192.0.2.1", 8476) == 8476
