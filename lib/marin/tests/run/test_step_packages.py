"""What `pip_dependency_groups` of a step become: groups of the project, and packages."""

from marin.execution import ExecutorStep
from marin.execution.jobs.packages import split_dependency_groups
from marin.execution.jobs.remote import job_request, remote


def test_groups_and_packages_of_the_documents() -> None:
    step = ExecutorStep(
        name="restarts",
        fn=print,
        config=None,
        pip_dependency_groups=["quality_dedup_consolidate", "google-cloud-logging"],
    )
    assert step.pip_dependency_groups is not None
    groups = split_dependency_groups(step.pip_dependency_groups)
    assert (groups.extras, groups.pip_packages) == (["quality_dedup_consolidate"], ["google-cloud-logging"])
    environment = job_request(remote(print, pip_dependency_groups=step.pip_dependency_groups), "job").environment
    assert environment is not None
    assert (environment.extras, environment.pip_packages) == (["quality_dedup_consolidate"], ["google-cloud-logging"])
