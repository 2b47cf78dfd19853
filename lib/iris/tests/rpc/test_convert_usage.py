"""What an attempt used comes back from the wire as it was."""

from iris.domain.usage import USAGE_FIELDS, Usage, usage_from
from iris.rpc.convert_usage import usage_from_wire, usage_to_wire


def test_every_number_comes_back() -> None:
    usage = Usage(*range(1, len(USAGE_FIELDS) + 1))
    message = usage_to_wire("/ann/a/0:1", usage, "w1")
    assert (message.attempt_id, message.worker_id) == ("/ann/a/0:1", "w1")
    assert usage_from_wire(message) == usage
    assert usage_from(list(usage.numbers())) == usage


def test_numbers_below_0_mean_nothing_and_those_of_later_releases_are_passed_over() -> None:
    message = usage_to_wire("", Usage(cpu_ms=5))
    message.memory_bytes = -5
    assert usage_from_wire(message) == Usage(cpu_ms=5)
    assert usage_from([1, -2, *[0] * 20]) == Usage(cpu_ms=1)
    assert usage_from("no list") == Usage()
