"""Which namespaces a sharder without cluster rights looks at, and which belong to the ring."""

from __future__ import annotations

import pytest

from kubeio.errors import InputError
from kubeio.labels import split_namespaces
from kubeio.resource import ApiResource
from sharder.errors import RingRefused
from sharder.ringspec.scope import EVERYWHERE, Scope

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
NODES = ApiResource("", "v1", "nodes", "Node", namespaced=False)


def test_every_list_and_watch_names_a_namespace_where_only_some_are_looked_at() -> None:
    assert Scope(("a", "b")).namespaces == ("a", "b")
    assert EVERYWHERE.namespaces == ("",)


def test_a_namespace_that_is_no_longer_named_is_read_and_not_selected() -> None:
    scope = Scope(("a",), former=("b",))
    assert scope.namespaces == ("a", "b")


def test_what_has_no_namespace_cannot_be_worked_in_some() -> None:
    Scope(("a",)).check("r", [WEBSITES])
    EVERYWHERE.check("r", [WEBSITES, NODES])
    with pytest.raises(RingRefused, match="'nodes' is cluster-scoped"):
        Scope(("a",)).check("r", [WEBSITES, NODES])


@pytest.mark.parametrize(
    ("text", "names"), [("", ()), ("a", ("a",)), ("a,b", ("a", "b")), ("a, b,a", ("a", "b"))]
)
def test_namespaces_are_given_as_one_argument(text: str, names: tuple[str, ...]) -> None:
    assert split_namespaces(text) == names


@pytest.mark.parametrize("text", [",", "a,", "A", "a b", "a/b", "-a"])
def test_what_cannot_be_a_namespace_is_bad_input(text: str) -> None:
    with pytest.raises(InputError, match=r"--namespaces: .* cannot be a namespace"):
        split_namespaces(text)
