"""A client over a transport that is passed in: failures are translated, and no socket is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubeio.access.cluster import Cluster, parse_server
from kubeio.errors import Forbidden, NotFound, Unreachable
from kubeio.http.endpoint import Trust
from kubeio.http.lines import Lines
from kubeio.http.messages import Answer, BrokenMessage, Call
from kubeio.resource import LEASES
from kubeio.rest.client import Client

SERVER = "https://api.example.com"


class Memory:
    """Answers from *answers* by path; other paths are cut off."""

    def __init__(self, answers: dict[str, Answer], lines: bytes = b"") -> None:
        self.answers = answers
        self.lines = lines
        self.is_closed = False

    async def answer(self, call: Call, timeout_s: float) -> Answer:
        if call.path not in self.answers:
            raise BrokenMessage("lost", sent=call.method != "GET", answered=False)
        return self.answers[call.path]

    @asynccontextmanager
    async def stream(self, call: Call, timeout_s: float) -> AsyncIterator[Lines | Answer]:
        if call.path in self.answers:
            yield self.answers[call.path]
            return
        lines = Lines(lambda: None, lambda: None)
        lines.feed(self.lines)
        lines.fail(BrokenMessage("cut", sent=True, answered=True))
        yield lines

    async def close(self) -> None:
        self.is_closed = True


def client_over(transport: Memory) -> Client:
    endpoint = parse_server(SERVER, field_="server")
    cluster = Cluster(SERVER, "default", "ada", endpoint, Trust(), None)
    return Client(cluster, transport=transport)


async def test_answers_and_failures_come_from_the_transport() -> None:
    path = LEASES.path(namespace="a", name="b")
    memory = Memory({path: Answer(200, [], b"{}"), "/no": Answer(404, [], b"{}")})
    async with client_over(memory) as client:
        assert await client.get(LEASES, "b", namespace="a", type=bytes) == b"{}"
        with pytest.raises(NotFound):
            await client.request("GET", "/no")
    assert memory.is_closed


@pytest.mark.parametrize(("method", "maybe_done"), [("GET", False), ("PATCH", True)])
async def test_a_lost_answer_says_whether_the_request_may_be_done(method: str, maybe_done: bool) -> None:
    async with client_over(Memory({})) as client:
        with pytest.raises(Unreachable, match=f"{method} /a on {SERVER}: lost") as caught:
            await client.request(method, "/a")
    assert caught.value.maybe_done is maybe_done


async def test_a_stream_gives_its_lines_and_then_what_cut_it_off() -> None:
    seen: list[bytes] = []

    async def read(client: Client) -> None:
        async with client.stream("/w") as lines:
            async for line in lines:
                seen.append(line)  # the error comes after them

    async with client_over(Memory({}, b"a\nb\n")) as client:
        with pytest.raises(Unreachable, match="cut"):
            await read(client)
    assert seen == [b"a", b"b"]


async def test_a_stream_that_is_refused_is_a_typed_failure() -> None:
    async with client_over(Memory({"/w": Answer(403, [], b"{}")})) as client:
        with pytest.raises(Forbidden):
            async with client.stream("/w"):
                pytest.fail("there is no stream")
