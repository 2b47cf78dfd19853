"""An actor as a parameter server: four workers send gradients asynchronously.

python -m experiments.examples.parameter_server                                       # in this process: threads
FRAY_CLIENT='local://?processes=1' python -m experiments.examples.parameter_server    # each worker in a process
iris job run -- python -m experiments.examples.parameter_server                       # on an Iris cluster
"""

from fray import ActorHandle, Entrypoint, JobRequest, ResourceConfig, current_client, wait_all

WORKERS = 4
ROUNDS = 150
RATE = 0.2
SMALL = ResourceConfig.with_cpu(cpu=0.1, ram="128m", disk="64m")


class Parameters:
    """An actor with the slope and the intercept of a line."""

    def __init__(self) -> None:
        self.slope = 0.0
        self.intercept = 0.0
        self.updates: dict[int, int] = {}

    def push(self, worker: int, gradient: tuple[float, float]) -> tuple[float, float]:
        """Apply a worker's gradient, and return the parameters for its next round."""
        self.slope -= RATE * gradient[0]
        self.intercept -= RATE * gradient[1]
        self.updates[worker] = self.updates.get(worker, 0) + 1
        return self.slope, self.intercept

    def read(self) -> tuple[float, float, dict[int, int]]:
        """Return the parameters, and the number of gradients from each worker."""
        return self.slope, self.intercept, dict(self.updates)


def work(worker: int, server: ActorHandle) -> None:
    """Fit y = 3 x + 2 to this worker's part of 1,000 points."""
    points = [(index / 1000, 3 * index / 1000 + 2) for index in range(worker, 1000, WORKERS)]
    slope, intercept, _ = server.read()
    for _ in range(ROUNDS):
        errors = [(slope * x + intercept - y, x) for x, y in points]
        gradient = (
            sum(error * x for error, x in errors) / len(points),
            sum(error for error, _ in errors) / len(points),
        )
        slope, intercept = server.push(worker, gradient)


def main() -> None:
    """Start the server and the workers, and print the fitted line."""
    client = current_client()
    group = client.create_actor_group(Parameters, name="parameter-server", count=1, resources=SMALL)
    try:
        (server,) = group.wait_ready()
        jobs = [
            client.submit(JobRequest(f"worker-{worker}", Entrypoint.from_callable(work, [worker, server]), SMALL))
            for worker in range(WORKERS)
        ]
        wait_all(jobs)
        slope, intercept, updates = server.read()
    finally:
        # On a cluster an actor goes on without this script.
        group.shutdown()
    for worker, count in sorted(updates.items()):
        print(f"worker {worker} sent {count} gradients")
    print(f"y = {slope:.2f} x + {intercept:.2f}")


if __name__ == "__main__":
    main()
