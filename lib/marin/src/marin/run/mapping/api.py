"""`map_files`, and the validation of its arguments."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from fray import Client, Entrypoint, EnvironmentConfig, JobRequest, ResourceConfig, current_client
from fray.requests.checks import check_amount, check_count
from marin.run.mapping.manifest import Manifest
from marin.run.mapping.map_run import MapRun
from marin.run.mapping.pairs import OutputPaths, Paths, file_tasks
from marin.run.mapping.result import MapFilesResult, failure_of
from marin.run.mapping.state import QueueRules
from marin.run.mapping.worker import FileFunction
from rigging.errors import InvalidRequest
from rigging.process.calls import generator_problem, is_generator_function, name_of

logger = logging.getLogger(__name__)

DEFAULT_RESOURCES = ResourceConfig.with_cpu(cpu=1, ram="1g")


def map_files(
    fn: FileFunction,
    inputs: Paths,
    outputs: OutputPaths,
    *,
    manifest: str | os.PathLike[str] | None = None,
    max_workers: int = 64,
    resources: ResourceConfig = DEFAULT_RESOURCES,
    environment: EnvironmentConfig | None = None,
    max_retries_failure: int = 2,
    max_retries_preemption: int = 100,
    batch_seconds: float = 1.0,
    name: str = "map-files",
    client: Client | None = None,
    on_progress: Callable[[MapFilesResult], object] | None = None,
    raise_on_failure: bool = True,
) -> MapFilesResult:
    """Call `fn(input, path)` for each input whose output does not exist, on the workers of any fray backend.

    The function writes to `path`, a local file. When the function returns, the file becomes the output, atomically; on
    object stores by one put. So an existing output is complete, and a restarted run continues where it was killed.
    Short calls are batched by duration.

    Args:
        fn: The function. It fails by raising or by returning False. Its output is in its worker's log.
        inputs: Paths or URLs in any number, also from a generator. They are read on demand.
        outputs: The same number of outputs, in the same order, or a function from input to output.
        manifest: Where to write a JSON line for each file with its input, output, status (succeeded, existed, failed)
            and error. During the run the name ends with `.partial`.
        max_workers: Maximum number of concurrent jobs.
        resources: The resources of each job.
        environment: The environment of each job; None for the submitter's own.
        max_retries_failure: Maximum number of retries of a file after the function failed or its process died.
        max_retries_preemption: Maximum number of retries of a file after its machine was preempted.
        batch_seconds: Target duration of one batch.
        name: Prefix of the workers' job names.
        client: The client; None for `current_client()`.
        on_progress: Called with the progress several times a second. It must be fast.
        raise_on_failure: Raise FilesFailed at the end if files have failed, instead of returning the result.

    Raises:
        InvalidRequest: Two inputs share an output, an output is invalid, or an input or output is the manifest. Lists
            are checked before anything starts, like all other arguments.
        Conflict: Another run is writing this manifest.
        FilesFailed: Files failed for good, after all others were tried. The message names inputs and errors.
        JobFailed: The workers do not start.
    """
    rules = QueueRules(max_workers, max_retries_failure, max_retries_preemption, batch_seconds)
    _check(rules, fn)
    client = client or current_client()
    tasks = file_tasks(inputs, outputs, manifest, processes=client.capabilities.separate_processes)
    request = JobRequest(
        name, Entrypoint.from_callable(fn, ["", ""]), resources, environment, 1, 0, max_retries_preemption
    )
    book = Manifest(manifest) if manifest is not None else None
    result = MapFilesResult(manifest=None if book is None else book.url)
    _work(MapRun(client, fn, request, rules, tasks, result, book, on_progress or _ignore))
    if result.failed and raise_on_failure:
        raise failure_of(result)
    return result


def _check(rules: QueueRules, fn: FileFunction) -> None:
    if is_generator_function(fn):
        raise InvalidRequest(f"map_files: {generator_problem(name_of(fn))}")
    check_count("map_files: max_workers", rules.workers)
    check_count("map_files: max_retries_failure", rules.max_retries_failure, 0)
    check_count("map_files: max_retries_preemption", rules.max_retries_preemption, 0)
    check_amount("map_files: batch_seconds", rules.batch_seconds)


def _work(run: MapRun) -> None:
    """Run to the end. Even after an error, leave no workers and no incomplete manifest behind."""
    try:
        run.work()
        run.stop(at_once=False)
        if run.manifest is not None:
            run.manifest.close()
    except BaseException:
        run.stop(at_once=True)
        if run.manifest is not None:
            _abandon(run.manifest)
        raise


def _abandon(manifest: Manifest) -> None:
    try:
        manifest.abandon()
    except Exception as error:
        # Why the run broke off is the error to see.
        logger.warning("the manifest %s lacks its last lines: %s", manifest.url, error)


def _ignore(_: MapFilesResult) -> None:
    return
