"""The live view of one sharder, read from outside: whether a sharder answers there, and the events that it sends.

Owns the messages for what does not answer as a sharder does. Knows no way there: `ringleader.dashboard.leader` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.errors import ApiError, Forbidden, InputError, KubeError, NotFound, Unauthorized, Unreachable
from ringleader.cluster.debug_endpoint import DebugEndpoint
from sharder.live.stream import EVENTS, HEARTBEAT_S, RIGHT

if TYPE_CHECKING:
    from kubeio.rest.client import Client

SILENCE_S: Final = 3 * HEARTBEAT_S
"""Longest silence of a stream before its sharder counts as lost."""
_AT_ONCE: Final = 50
_ANY: Final = "*/*"


class SharderLost(KubeError):
    """The sharder does not answer, or does not answer any more."""


class _Published(msgspec.Struct):
    sharder: str
    rings: dict[str, msgspec.Raw]


class SharderEndpoint:
    """Probes port of a sharder, through *client*. *field* and *value* name it in messages.

    `lost` is set once it cannot be used any more, for `reason`.
    """

    def __init__(self, client: Client, *, field: str, value: str, timeout_s: float) -> None:
        self.lost: Final = asyncio.Event()
        self.reason = ""
        self.value: Final = value
        self._client = client
        self._field = field
        self._timeout_s = timeout_s

    def lose(self, reason: str) -> None:
        """It cannot be used any more; the first reason counts."""
        if not self.lost.is_set():
            self.reason = reason
            self.lost.set()

    async def check(self) -> None:
        """Raises InputError if that is no sharder's port or the account has no right, SharderLost for no answer."""
        try:
            answer = await self._client.request("GET", RIGHT, accept=_ANY, timeout_s=self._timeout_s)
            msgspec.json.decode(answer.body, type=_Published)
        except msgspec.DecodeError:
            raise self._refused("answers, but is no sharder", "name the probes port of a sharder") from None
        except NotFound:
            raise await self._no_live_view() from None
        except (ApiError, Unreachable) as error:
            raise self._translated(error) from None

    async def relay(self, deliver: Callable[[bytes], Awaitable[None]]) -> None:
        """Hand each event to *deliver* until the sharder ends the stream.

        Raises: InputError, SharderLost; ApiError if the sharder is well and refuses this stream.
        """
        try:
            async with self._client.stream(EVENTS, accept=_ANY, connect_timeout_s=self._timeout_s) as lines:
                head = b""
                while taken := await lines.take(_AT_ONCE, timeout_s=SILENCE_S):
                    for line in taken:
                        if line.startswith(b"data: "):
                            await deliver(head + line + b"\n\n")
                        else:
                            head = line + b"\n"
        except TimeoutError:
            raise SharderLost(f"{self.value} has sent nothing for {SILENCE_S:.0f} s") from None
        except (Unauthorized, Forbidden, NotFound, Unreachable) as error:
            raise self._translated(error) from None
        raise SharderLost(f"{self.value} ended the stream")

    def _translated(self, error: KubeError) -> KubeError:
        match error:
            case Unauthorized():
                return self._refused(
                    "asks for a token (401)",
                    "use the address of a kubectl port-forward on this machine, such as http://127.0.0.1:8081",
                )
            case Forbidden():
                rule = f'{{nonResourceURLs: ["{RIGHT}"], verbs: ["get"]}}'
                return self._refused(
                    "does not admit this account (403)", f"add to a ClusterRole of it: {rule}"
                )
            case Unreachable():
                return SharderLost(f"{self.value} does not answer: {error.reason}")
            case ApiError():
                return SharderLost(f"{self.value}: {error.status} {error.message}")
        return error

    async def _no_live_view(self) -> InputError:
        shard = await DebugEndpoint(self._client, "", name=self.value, timeout_s=self._timeout_s).shard()
        if shard:
            return self._refused(
                f"is the port of the replica {shard}, not of a sharder", "name the probes port of a sharder"
            )
        return self._refused(
            f"has no {RIGHT}: it is no sharder, or one of an older version",
            "name the probes port of a sharder, or upgrade the sharder to the version of this command",
        )

    def _refused(self, problem: str, remedy: str) -> InputError:
        return InputError(self._field, self.value, problem, remedy)
