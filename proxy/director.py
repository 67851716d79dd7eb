"""What decides about the requests of a controller: the protocol between the relay and whoever knows its shard.

The relay calls every method on its own event loop. It decides nothing about shards; a director knows nothing of
sockets, encodings and credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from kubeio.rest.request_info import RequestInfo
from proxy.alias import Alias
from proxy.protobuf import ObjectHead
from proxy.refusals import Refusal


class Selection(msgspec.Struct, frozen=True):
    """Limits of a collection request: *terms* of a label selector, joined by commas.

    A first list from any version is raised to *not_older_than* this resourceVersion; empty: it is not.
    """

    terms: str
    not_older_than: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """One write of the controller: the same object from `admit` to `end`.

    *body*: what a create, update or apply says of its object, if the director asked for it. None for other writes,
    patches of other kinds among them.
    """

    info: RequestInfo
    body: ObjectHead | None = None


class Admitted(msgspec.Struct, frozen=True):
    """The write may pass. *labels* go into the body of a create, update or apply that was read.

    A patch that changes one of them changes it no more. So it is with *annotations*; one that is None is left out.
    """

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str | None] = {}


class Director(Protocol):
    """Decides about requests. Its methods raise nothing: an exception ends the relay."""

    def selection(self, request: RequestInfo) -> Selection | None:
        """Limits of a list, watch or deletecollection; None: it passes unchanged."""

    def alias(self, request: RequestInfo) -> Alias | None:
        """What the controller sees instead of the shard's name in the answer to *request*; None: the answer passes."""

    def reads_body(self, write: RequestInfo) -> bool:
        """Whether the body of a create, update or patch must be read before `admit`.

        A body that is then neither JSON nor protobuf is refused with 415, without a question.
        """

    async def admit(self, write: Write) -> Admitted | Refusal:
        """Whether *write* may pass. May wait: the request is not sent before. Cancelled if the controller hangs up.

        Asked again, without a `begin`, if the connection to the server was lost meanwhile.

        Asked for each create, update, patch, delete and deletecollection, of any resource; not for locks, and not for
        exec, attach, portforward and proxy.
        """

    def begin(self, write: Write) -> None:
        """*write* was admitted and goes to the server now. Nothing runs on the loop between `admit` and this."""

    def instead_of(self, write: Write, answer: bytes) -> Refusal | None:
        """What the controller gets instead of *answer*, the server's whole one of status 422; None: that."""

    def end(self, write: Write, status: int | None) -> None:
        """The server answered *write* with *status*, also if the controller hung up. Once for each `begin`.

        None: no answer came, and none will; the server may have carried the write out, or may do so within
        `ANSWER_WITHIN_S` from now on.
        """
