"""In which order jobs are served."""

from collections.abc import Iterator

from iris.core.view import ClusterView
from iris.domain.entities import Job


def jobs_in_order(view: ClusterView) -> Iterator[Job]:
    """Jobs with pending tasks: by band, then age. The view keeps them sorted, so this costs nothing to begin."""
    jobs = view.jobs
    for _, _, job_id in view.queue:
        yield jobs[job_id]
