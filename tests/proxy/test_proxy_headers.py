"""Heads of requests on their way to the API server: the credential is ours, and so is the life they name. Pure."""

from __future__ import annotations

import pytest

from proxy.headers import Header, Identity, request_head

LIFE = ("Impersonate-Extra-Shard.ringleader.dev%2Flife", "web-1")
FIXED = b"Host: server\r\nAuthorization: Bearer real\r\n"


def lines(headers: list[Header], identity: Identity | None = None, *, without: bytes = b"") -> list[bytes]:
    head = request_head(
        b"GET / HTTP/1.1\r\n", headers, fixed=FIXED, identity=identity or Identity(), without=without
    )
    return head.split(b"\r\n")[:-1]


def test_what_belongs_to_a_connection_or_to_its_client_stays_behind() -> None:
    headers = [
        (b"HOST", b"127.0.0.1"),
        (b"authorization", b"Bearer loopback"),
        (b"Connection", b"keep-alive, X-Trick"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Content-Length", b"7"),
        (b"TE", b"trailers"),
        (b"Accept", b"application/json"),
        (b"X-Trick", b"1"),
    ]
    assert lines(headers) == [
        b"GET / HTTP/1.1",
        b"Host: server",
        b"Authorization: Bearer real",
        b"Accept: application/json",
        b"X-Trick: 1",
    ]


def test_one_more_header_can_be_left_out() -> None:
    headers = [(b"Accept-Encoding", b"gzip"), (b"Accept", b"*/*")]
    assert lines(headers, without=b"accept-encoding")[3:] == [b"Accept: */*"]


def test_the_impersonated_identity_goes_with_every_request() -> None:
    identity = Identity([("Impersonate-User", "sa"), ("Impersonate-Group", "g"), LIFE])
    assert lines([(b"A", b"b")], identity)[4:] == [
        b"Impersonate-User: sa",
        b"Impersonate-Group: g",
        b"Impersonate-Extra-Shard.ringleader.dev%2Flife: web-1",
    ]


def test_a_controller_that_impersonates_a_tenant_keeps_it_and_gets_the_life() -> None:
    identity = Identity([("Impersonate-User", "sa"), ("Impersonate-Group", "g"), LIFE])
    asked = [(b"impersonate-user", b"tenant"), (b"Impersonate-Group", b"tenants")]
    assert lines(asked, identity)[3:] == [
        b"Impersonate-Extra-Shard.ringleader.dev%2Flife: web-1",
        b"impersonate-user: tenant",
        b"Impersonate-Group: tenants",
    ]


@pytest.mark.parametrize(
    "name",
    [
        b"Impersonate-Extra-shard.ringleader.dev%2Flife",
        b"impersonate-extra-SHARD.ringleader.dev%2flife",
        b"Impersonate-Extra-%73hard.ringleader.dev%2Flife",
        b"Impersonate-Extra-shard.ringleader.dev/life",
    ],
)
@pytest.mark.parametrize("tenant", [True, False])
def test_a_controller_cannot_choose_its_life(name: bytes, *, tenant: bool) -> None:
    identity = Identity([("Impersonate-User", "sa"), LIFE])
    asked = [(name, b"web-2"), *([(b"Impersonate-User", b"tenant")] if tenant else [])]
    sent = lines(asked, identity)
    assert not any(b"web-2" in line for line in sent)
    assert sum(b"web-1" in line for line in sent) == 1


def test_without_an_identity_the_controller_s_impersonation_passes() -> None:
    asked = [(b"Impersonate-User", b"tenant"), (b"Impersonate-Extra-a", b"b")]
    assert lines(asked)[3:] == [b"Impersonate-User: tenant", b"Impersonate-Extra-a: b"]
