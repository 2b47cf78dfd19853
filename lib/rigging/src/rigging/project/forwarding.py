"""Variables of the submitter's environment that every job gets, besides MARIN_*."""

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
"""Credentials and the like, taken when they are set: by the command lines and by fray's `create_environment`."""
