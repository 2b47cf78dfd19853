"""What Ray's provider asks of a project: its service account, policy, common metadata and subnetworks."""

from support.google.cloud import Call, Cloud, Json
from support.google.words import NOT_FOUND


def get_project(cloud: Cloud, call: Call) -> Json:
    """Return a project of the Resource Manager."""
    return {"projectId": call.project, "lifecycleState": "ACTIVE"}


def get_policy(cloud: Cloud, call: Call) -> Json:
    """Return the policy of a project."""
    return cloud.policy


def set_policy(cloud: Cloud, call: Call) -> Json:
    """Replace the policy of a project."""
    cloud.policy = call.body["policy"]
    return cloud.policy


def get_account(cloud: Cloud, call: Call) -> Json:
    """Return a service account that was created."""
    if call.path not in cloud.accounts:
        raise call.refuse(NOT_FOUND)
    return cloud.accounts[call.path]


def create_account(cloud: Cloud, call: Call) -> Json:
    """Create a service account."""
    email = f"{call.body['accountId']}@{call.project}.iam.gserviceaccount.com"
    account = {"email": email, "projectId": call.project}
    cloud.accounts[f"{call.path}/{email}"] = account
    return account


def get_compute_project(cloud: Cloud, call: Call) -> Json:
    """Return a project of Compute Engine."""
    return {"name": call.project, "commonInstanceMetadata": cloud.common_metadata}


def set_common_metadata(cloud: Cloud, call: Call) -> Json:
    """Replace the metadata of all machines of a project."""
    cloud.common_metadata = call.body
    return cloud.operations.setdefault(
        f"projects/{call.project}/global/operations/metadata", {"name": "metadata", "status": "DONE", "progress": 100}
    )


def list_subnetworks(cloud: Cloud, call: Call) -> Json:
    """Return the one subnetwork of a region."""
    region = call.names["region"]
    link = f"https://www.googleapis.com/compute/v1/projects/{call.project}/regions/{region}/subnetworks/default"
    return {"items": [{"name": "default", "selfLink": link}]}
