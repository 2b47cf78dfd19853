"""Converts join tokens, users' tokens and workers' credentials to rows and back. The columns are the fields, in
order.
"""

from dataclasses import astuple, fields
from typing import Final

from iris.domain.access import JoinToken, UserToken, WorkerCredential
from iris.store.rows import Row

JOIN_TOKEN_COLUMNS: Final = tuple(field.name for field in fields(JoinToken))
USER_TOKEN_COLUMNS: Final = tuple(field.name for field in fields(UserToken))
CREDENTIAL_COLUMNS: Final = tuple(field.name for field in fields(WorkerCredential))


def join_token_row(token: JoinToken) -> Row:
    """Return the row of a join token."""
    return astuple(token)


def join_token_of(row: Row) -> JoinToken:
    """Return the join token of a row."""
    return JoinToken(*row)


def user_token_row(token: UserToken) -> Row:
    """Return the row of a user's token."""
    return astuple(token)


def user_token_of(row: Row) -> UserToken:
    """Return the user's token of a row."""
    return UserToken(*row)


def credential_row(credential: WorkerCredential) -> Row:
    """Return the row of a worker's credential."""
    return astuple(credential)


def credential_of(row: Row) -> WorkerCredential:
    """Return the credential of a row."""
    return WorkerCredential(*row)
