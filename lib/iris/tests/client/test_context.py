"""What a task sees of itself."""

from typing import cast

from iris.client import IrisClient, IrisContext
from iris.client.job_env import job_env

VARIABLES = {
    "IRIS_JOB_ID": "/ann/train",
    "IRIS_CONTROLLER_ADDRESS": "127.0.0.1:1",
    "IRIS_TASK_ID": "/ann/train/3",
    "IRIS_ATTEMPT_ID": "/ann/train/3:2",
    "IRIS_WORKER_ID": "w1",
    "IRIS_NUM_TASKS": "8",
    "IRIS_PORT_HTTP": "8080",
    "IRIS_PORT_OTHER": "no number",
}


def test_a_task_knows_who_it_is_and_which_attempt() -> None:
    job = job_env(VARIABLES)
    assert job is not None
    context = IrisContext(job, cast(IrisClient, None))
    assert (context.job_id, context.task_id, context.task_attempt) == ("/ann/train", "/ann/train/3", 2)
    assert (context.worker_id, context.ports) == ("w1", {"http": 8080})
    assert job.num_tasks == 8


def test_outside_of_a_job_there_is_none() -> None:
    for missing in ("IRIS_JOB_ID", "IRIS_CONTROLLER_ADDRESS"):
        assert job_env({name: value for name, value in VARIABLES.items() if name != missing}) is None
    assert job_env({**VARIABLES, "IRIS_JOB_ID": ""}) is None
