"""Ray's side of actors.py, in a separate process namespace. Prints its figures as a line of JSON."""

import json
import statistics
import sys
import time

import ray
from actors import IN_FLIGHT, KB, REPEATS, Echo, measure


def in_flight(actor, count: int) -> float:
    begin = time.perf_counter()
    pending = []
    for _ in range(count):
        if len(pending) >= IN_FLIGHT:
            _, pending = ray.wait(pending, num_returns=1)
        pending.append(actor.echo.remote(KB))
    ray.get(pending)
    return count / (time.perf_counter() - begin)


def main() -> None:
    calls = int(sys.argv[1])
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    actor = ray.remote(Echo).remote()
    told = measure(lambda data: ray.get(actor.echo.remote(data)), None, calls)
    told["in_flight_per_s"] = round(statistics.median(in_flight(actor, calls) for _ in range(REPEATS)))

    # As its own benchmark does: all calls at once, then all results.
    def at_once() -> float:
        begin = time.perf_counter()
        ray.get([actor.echo.remote(KB) for _ in range(1000)])
        return 1000 / (time.perf_counter() - begin)

    told["thousand_at_once_per_s"] = round(statistics.median(at_once() for _ in range(REPEATS)))
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
