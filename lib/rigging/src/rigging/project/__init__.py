"""The user's project: the files for a job, the needs of its code, its environment variables.

Only code that reads a project's folder belongs here. Iris's and Ray's code packs and sends it.
"""

from typing import Final

FORWARDED_ENV_VARS: Final = (
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "WANDB_API_KEY",
    "WANDB_ENTITY",
    "WANDB_MODE",
    "WANDB_PROJECT",
    "OPENAI_API_KEY",
    "GITHUB_TOKEN",
)
"""Credentials and similar variables, passed on if set: by the command lines and by fray's `create_environment`."""
