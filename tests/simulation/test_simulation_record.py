"""The record of a run, and what is shown of it after a failure."""

from __future__ import annotations

import msgspec
import pytest

from kubeio.http.messages import Call
from simulation.record import describe_write, relevant
from simulation.scale import KEYS

SITE = "/apis/example.com/v1/namespaces/sites/websites/site-1"


def call(method: str, path: str, body: object = None) -> Call:
    encoded = None if body is None else msgspec.json.encode(body)
    return Call(method, path, {}, "application/json", encoded)


@pytest.mark.parametrize(
    ("request_", "shown"),
    [
        (call("DELETE", SITE), "DELETE websites/site-1"),
        (
            call("PATCH", SITE, {"metadata": {"labels": {KEYS.shard: "replica-1-0a"}}}),
            "PATCH websites/site-1 shard=replica-1-0a",
        ),
        (
            call(
                "PATCH",
                SITE,
                [
                    {"op": "test", "path": f"/metadata/labels/{KEYS.shard.replace('/', '~1')}", "value": "a"},
                    {"op": "add", "path": f"/metadata/labels/{KEYS.drain.replace('/', '~1')}", "value": "b"},
                ],
            ),
            "PATCH websites/site-1 if shard=a: drain=b",
        ),
        (
            call(
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/leases/leases/x",
                {"spec": {"holderIdentity": None}},
            ),
            "PUT leases/x holder=",
        ),
        (call("PATCH", SITE, {"spec": {"html": "1"}}), "PATCH websites/site-1"),
    ],
)
def test_a_write_is_described_by_what_it_does_to_the_ring(request_: Call, shown: str) -> None:
    assert describe_write(request_, KEYS) == shown


def test_a_failure_shows_its_object_its_shards_and_every_fault() -> None:
    lines = [
        "    1.0000  replica-1/100 PATCH websites/site-1/status -> 200",
        "    2.0000  replica-1/100 PATCH websites/site-2/status -> 200",
        "    3.0000  FAULT process_frozen replica-2/101",
        "    4.0000  replica-1/100 PUT leases/replica-1-0a0a0a0a holder=replica-1-0a0a0a0a -> 200",
        "    5.0000  replica-1/100 PUT leases/replica-1-0a0a0a0a holder=replica-1-0a0a0a0a -> 200",
    ]
    shown = relevant(lines, "sites/site-1 is reconciled by replica-1-0a0a0a0a", most=10)
    assert shown == [lines[0], lines[2], lines[3]]
