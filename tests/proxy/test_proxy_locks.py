"""Locks that the proxy answers: the controller leads on what it stored, and a new life finds none. Pure."""

from __future__ import annotations

import pytest

from kubeio.rest.request_info import request_info
from proxy.bodies import JSON, PROTOBUF
from proxy.locks import EchoLocks
from proxy.protobuf import ObjectHead
from tests.proxy.protobuf_writer import field, message, metadata

MERGE = "application/merge-patch+json"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/a/leases"
LEASE = b'{"metadata": {"name":"lock"}, "spec":{"holderIdentity":"me"}}'
PROTOBUF_LEASE = message("coordination.k8s.io/v1", "Lease", field(1, metadata(ObjectHead(name="lock"))))


class Locks:
    """The locks, asked over HTTP."""

    def __init__(self) -> None:
        self.echo = EchoLocks({"lock"})

    def ask(
        self, method: str, target: str, body: bytes = b"", content_type: str = JSON
    ) -> tuple[int, bytes, str] | None:
        reply = self.echo.reply(request_info(method, target), body, content_type)
        if reply is None:
            return None
        head, _, content = reply.partition(b"\r\n\r\n")
        kind = next(line for line in head.decode().split("\r\n") if line.startswith("Content-Type: "))
        return int(head.split()[1]), content, kind.removeprefix("Content-Type: ")


@pytest.fixture
def locks() -> Locks:
    return Locks()


@pytest.mark.parametrize(
    "path", [LEASES, "/api/v1/namespaces/a/configmaps", "/api/v1/namespaces/a/endpoints"]
)
@pytest.mark.parametrize(("body", "encoding"), [(LEASE, JSON), (PROTOBUF_LEASE, PROTOBUF)])
def test_a_lock_is_absent_until_it_is_stored_and_then_what_was_stored(
    locks: Locks, path: str, body: bytes, encoding: str
) -> None:
    absent = locks.ask("GET", f"{path}/lock")
    assert absent is not None
    assert absent[0] == 404
    assert locks.ask("POST", path, body, encoding) == (201, body, encoding)
    assert locks.ask("GET", f"{path}/lock") == (200, body, encoding)
    assert locks.ask("PUT", f"{path}/lock", body + b" ", encoding) == (200, body + b" ", encoding)
    assert locks.ask("GET", f"{path}/lock") == (200, body + b" ", encoding)


def test_a_second_create_of_a_lock_meets_the_first(locks: Locks) -> None:
    locks.ask("POST", LEASES, LEASE)
    again = locks.ask("POST", LEASES, LEASE)
    assert again is not None
    assert again[0] == 409
    assert b'"reason":"AlreadyExists"' in again[1]


def test_a_lock_that_is_not_stored_cannot_be_updated(locks: Locks) -> None:
    answer = locks.ask("PUT", f"{LEASES}/lock", LEASE)
    assert answer is not None
    assert answer[0] == 404


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", f"{LEASES}/other", b""),
        ("POST", LEASES, LEASE.replace(b"lock", b"other")),
        ("POST", LEASES, b"garbage"),
        ("GET", f"{LEASES}?fieldSelector=metadata.name%3Dlock", b""),
        ("GET", f"{LEASES}?watch=true", b""),
        ("DELETE", LEASES, b""),
        ("GET", "/api/v1/namespaces/a/pods/lock", b""),
        ("GET", "/apis/example.com/v1/namespaces/a/leases/lock", b""),
        ("PUT", f"{LEASES}/lock/status", LEASE),
    ],
)
def test_everything_else_is_the_api_server_s(locks: Locks, method: str, target: str, body: bytes) -> None:
    locks.ask("POST", LEASES, LEASE)
    assert locks.ask(method, target, body) is None


def test_locks_of_two_namespaces_are_two(locks: Locks) -> None:
    locks.ask("POST", LEASES, LEASE)
    other = locks.ask("GET", f"{LEASES.replace('/a/', '/b/')}/lock")
    assert other is not None
    assert other[0] == 404


def test_a_merge_patch_changes_what_was_stored_as_json(locks: Locks) -> None:
    locks.ask("POST", LEASES, LEASE)
    answer = locks.ask("PATCH", f"{LEASES}/lock", b'{"spec":{"holderIdentity":"you"}}', MERGE)
    assert answer == (200, LEASE.replace(b'me"}', b'you"}').replace(b": {", b":{").replace(b", ", b","), JSON)


@pytest.mark.parametrize(
    ("stored", "encoding", "patch", "content_type", "status"),
    [
        (PROTOBUF_LEASE, PROTOBUF, b"{}", MERGE, 415),
        (LEASE, JSON, b"[]", "application/json-patch+json", 415),
        (LEASE, JSON, b"{", MERGE, 400),
    ],
)
def test_a_patch_that_cannot_be_applied_is_refused(
    locks: Locks, stored: bytes, encoding: str, patch: bytes, content_type: str, status: int
) -> None:
    locks.ask("POST", LEASES, stored, encoding)
    answer = locks.ask("PATCH", f"{LEASES}/lock", patch, content_type)
    assert answer is not None
    assert answer[0] == status
    assert locks.ask("GET", f"{LEASES}/lock") == (200, stored, encoding)


def test_a_deleted_lock_is_absent(locks: Locks) -> None:
    locks.ask("POST", LEASES, LEASE)
    assert locks.ask("DELETE", f"{LEASES}/lock") == (200, LEASE, JSON)
    answer = locks.ask("GET", f"{LEASES}/lock")
    assert answer is not None
    assert answer[0] == 404


def test_a_new_life_finds_no_lock(locks: Locks) -> None:
    locks.ask("POST", LEASES, LEASE)
    locks.echo.forget()
    answer = locks.ask("GET", f"{LEASES}/lock")
    assert answer is not None
    assert answer[0] == 404
