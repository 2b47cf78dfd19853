"""Every route of the cluster's pages, asked in odd ways: nothing that is sent makes the server fail."""

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from support.iris.users import User

from .conftest import BASE

NAMES = ("id", "q", "state", "user", "page", "parent", "depth", "grep", "level", "attempt", "children", "since", "have")
VALUES = st.one_of(
    st.sampled_from(
        [
            *("/ann/a", "/ann/a/0", "w1", "0", "-1", "1", "9" * 25, "running", "%", "SELECT 1", "(", ".*", "\0"),
            *("", "x", "/", "//", "/ann", "/ann/../bob", "'; DROP TABLE jobs; --", "é" * 3000),
        ]
    ),
    st.text(max_size=30),
)
STREAMS = {"/events", "/job/usage", "/logs/follow"}
"""These go on; what they refuse is refused by the same code as the rest."""


@pytest.mark.process
def test_no_request_makes_the_server_fail(pages: Any, admin: User) -> None:
    admin.submit("/ann/a")
    client = pages.browser("root", is_admin=True, may_write=True)
    token = client.app.state.web.sessions
    session = token.read(client.cookies[client.app.state.web.settings.cookie].strip('"'))
    form_token = token.form_token(session)
    routes = [route for route in pages.app.routes if isinstance(route, Route) and route.path not in STREAMS]
    paths = {route.path for route in routes}
    assert {"/jobs", "/job", "/job/stop", "/task", "/logs", "/logs/text", "/worker/cordon", "/sql", "/metrics"} <= paths

    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.sampled_from(routes),
        st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4),
        st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]),
        st.dictionaries(st.sampled_from([*NAMES, "do", "reason"]), VALUES, max_size=4),
        st.booleans(),
        st.text(max_size=20),
    )
    def ask(route: Route, query: dict[str, str], method: str, form: dict[str, str], has_token: bool, rest: str) -> None:
        path = route.path.replace("{name:path}", quote(rest)).replace("{path:path}", quote(rest))
        if path == "/logout":
            return  # it ends the session of the others
        body = {**form, "form_token": form_token} if has_token else form
        answer = client.request(
            method,
            path,
            params=query,
            data=body if method in ("POST", "PUT") else None,
            headers={"origin": BASE, "hx-request": "true" if has_token else "false"},
            follow_redirects=False,
        )
        assert answer.status_code < 500, (method, path, query, answer.text)

    ask()
