from iris.core.state.endpoint_table import EndpointTable
from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.ids import AttemptId


def endpoint(name: str, attempt: str, address: str = "h:1") -> RegisteredEndpoint:
    return RegisteredEndpoint(name, AttemptId(attempt), address)


A = endpoint("/u/a/x", "/u/a/0:0")
B = endpoint("/u/a/x", "/u/a/1:0")
C = endpoint("/u/a/y", "/u/a/0:0")
D = endpoint("/u/a/b/x", "/u/a/b/0:0")
E = endpoint("/u/ab/x", "/u/ab/0:0")
ALL = (A, B, C, D, E)


def table(*endpoints: RegisteredEndpoint) -> EndpointTable:
    made = EndpointTable()
    made.apply({item.endpoint_id: item for item in endpoints})
    return made


def test_all_are_found_in_the_order_of_registration_by_name_and_by_attempt() -> None:
    assert list(table(*ALL).all()) == list(ALL)
    assert len(table(*ALL)) == 5
    assert table(*ALL).get(B.endpoint_id) == B
    assert table(A).get(B.endpoint_id) is None
    made = table(*ALL)
    assert made.named("/u/a/x") == [A, B]
    assert made.named("/u/a/z") == made.named("/u/c/x") == []
    assert made.of_attempt(A.attempt_id) == (A.endpoint_id, C.endpoint_id)
    assert made.of_attempt(AttemptId("/u/none/0:0")) == ()


def test_below_a_prefix_of_names_whether_it_ends_within_a_name_or_not() -> None:
    found = {prefix: table(*ALL).below(prefix) for prefix in ("/u/a/", "/u/a/x", "/u/a/b", "/u/a/b/", "/u/none/")}
    assert found == {"/u/a/": [A, B, C, D], "/u/a/x": [A, B], "/u/a/b": [D], "/u/a/b/": [D], "/u/none/": []}
    assert table(*ALL).below("/u/a") == [A, B, C, D, E]


def test_what_is_removed_is_found_by_none_of_the_ways() -> None:
    made = table(*ALL)
    made.apply({A.endpoint_id: None, D.endpoint_id: None, endpoint("/u/a/z", "/u/a/9:0").endpoint_id: None})
    assert list(made.all()) == [B, C, E]
    assert made.named("/u/a/x") == [B]
    assert made.of_attempt(A.attempt_id) == (C.endpoint_id,)
    assert made.below("/u/a/") == [B, C]
    made.apply({item.endpoint_id: None for item in ALL})
    assert (len(made), made.below("/u/"), made.of_attempt(A.attempt_id)) == (0, [], ())


def test_one_that_registers_again_is_there_once_with_its_new_address() -> None:
    made = table(A, B)
    again = endpoint(A.name, A.attempt_id, "h:2")
    made.apply({again.endpoint_id: again})
    assert made.named(A.name) == [B, again]
    assert (len(made), made.of_attempt(A.attempt_id)) == (2, (A.endpoint_id,))
