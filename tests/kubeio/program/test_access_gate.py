"""Who may read inner pages of a process: local visitors, and tokens with the right, asked about each ten seconds."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from kubeio.clock import ManualClock
from kubeio.errors import Unreachable
from kubeio.program.access_gate import Access, AccessGate, RequestOrigin
from kubeio.rest.reviews import User


@dataclass
class Authority:
    """Knows tokens and rights as an API server does; can be away, and notes what it was asked."""

    rights: dict[str, list[str]] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    is_away: bool = False
    asked: list[str] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0

    async def bearer(self, token: str) -> User | None:
        self.asked.append(token)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if self.is_away:
            raise Unreachable("POST tokenreviews", "connection refused", maybe_done=False)
        return User(self.tokens[token]) if token in self.tokens else None

    async def may(self, user: User, *, verb: str, path: str) -> bool:
        return f"{verb} {path}" in self.rights.get(user.username, [])


def authority() -> Authority:
    return Authority(
        rights={"ada": ["get /debug/objects"], "bob": ["get /metrics"]}, tokens={"a": "ada", "b": "bob"}
    )


def stranger(token: str) -> RequestOrigin:
    return RequestOrigin("10.0.0.9", "10.0.0.1:8081", f"Bearer {token}" if token else "")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["localhost:8081", "127.0.0.1:8081", "[::1]:8081", "LOCALHOST"])
def test_a_visitor_from_this_machine_comes_in_without_a_token(address: str, host: str) -> None:
    assert RequestOrigin(address, host).is_local


@pytest.mark.parametrize(
    "visitor",
    [
        RequestOrigin("10.0.0.9", "localhost:8081"),
        RequestOrigin("127.0.0.6", "localhost:8081"),
        RequestOrigin("127.0.0.1", "rebound.example.com:8081"),
        RequestOrigin("127.0.0.1", ""),
        RequestOrigin("127.0.0.1", "localhost", is_forwarded=True),
        RequestOrigin("", "localhost"),
    ],
    ids=["other machine", "mesh proxy", "rebound name", "no name", "forwarded", "no address"],
)
async def test_what_only_looks_local_needs_a_token(visitor: RequestOrigin) -> None:
    door = AccessGate(authority(), path="/debug/objects", clock=ManualClock())
    assert door.at_once(visitor) is Access.UNKNOWN


@pytest.mark.parametrize(
    ("token", "entry"),
    [("a", Access.ADMITTED), ("b", Access.DENIED), ("forged", Access.UNKNOWN), ("", Access.UNKNOWN)],
)
async def test_a_token_is_authenticated_and_its_account_needs_the_right(token: str, entry: Access) -> None:
    door = AccessGate(authority(), path="/debug/objects", clock=ManualClock())
    assert await door.admit(stranger(token)) is entry


async def test_other_schemes_than_bearer_are_no_token() -> None:
    door = AccessGate(authority(), path="/debug/objects", clock=ManualClock())
    assert door.at_once(RequestOrigin("10.0.0.9", "x", "Basic YTph")) is Access.UNKNOWN


async def test_an_answer_holds_for_ten_seconds() -> None:
    asks, clock = authority(), ManualClock()
    door = AccessGate(asks, path="/debug/objects", clock=clock)
    await door.admit(stranger("a"))
    clock.advance(9)
    asks.rights["ada"] = []
    assert door.at_once(stranger("a")) is Access.ADMITTED
    clock.advance(1)
    assert door.at_once(stranger("a")) is None
    assert await door.admit(stranger("a")) is Access.DENIED
    assert asks.asked == ["a", "a"]


async def test_what_could_not_be_asked_is_not_remembered() -> None:
    asks = authority()
    door = AccessGate(asks, path="/debug/objects", clock=ManualClock())
    asks.is_away = True
    assert await door.admit(stranger("a")) is Access.UNDECIDED
    asks.is_away = False
    assert await door.admit(stranger("a")) is Access.ADMITTED


async def test_many_strangers_do_not_become_a_load_on_the_api_server() -> None:
    asks = authority()
    door = AccessGate(asks, path="/debug/objects", clock=ManualClock())
    entries = await asyncio.gather(*(door.admit(stranger(f"forged-{number % 50}")) for number in range(500)))
    assert set(entries) == {Access.UNKNOWN}
    assert asks.most_under_way <= 4
    assert len(asks.asked) == 50, "the same token is asked about once"


async def test_strangers_neither_delay_a_token_that_was_let_in_nor_have_it_forgotten() -> None:
    asks, clock = authority(), ManualClock()
    door = AccessGate(asks, path="/debug/objects", clock=clock)
    await door.admit(stranger("a"))
    clock.advance(10)
    crowd = [asyncio.create_task(door.admit(stranger(f"forged-{number}"))) for number in range(1000)]
    await asyncio.sleep(0)
    assert await door.admit(stranger("a")) is Access.ADMITTED
    assert len(asks.asked) < 20, "the crowd still waits"
    await asyncio.gather(*crowd)
    assert door.at_once(stranger("a")) is Access.ADMITTED


async def test_a_token_beyond_reason_is_not_passed_on() -> None:
    asks = authority()
    door = AccessGate(asks, path="/debug/objects", clock=ManualClock())
    assert await door.admit(stranger("x" * 10_000)) is Access.UNKNOWN
    assert asks.asked == []
