"""Waits at the start of a shard until the API server's fence acts: before that it takes no place on the ring.

Owns the decision what counts as fenced, and the one line that says why a shard waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import structlog

from kubeio.backoff import jittered_s
from kubeio.errors import ApiError
from kubeio.fence import FenceProbe, MissingRight, Verdict, each_server, policies_of
from kubeio.program.host import Host
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.impersonation import read_own_account
from kubeio.rest.reviews import User

log = structlog.get_logger("kubeio")

_AGAIN_S = 2.0
"""Between two looks: an API server knows a policy about a second after it was written."""


def problem_of(verdicts: Sequence[Verdict], ring: str) -> str:
    """Why *verdicts* of one API server are no fence; empty if they are one. Pure.

    What cannot be probed counts as fenced beside a kind that is: a policy names every kind of the ring. Objects without
    the label may be missing altogether.
    """
    if accepted := [verdict for verdict in verdicts if verdict.found == "open"]:
        kinds = ", ".join(dict.fromkeys(verdict.kind for verdict in accepted))
        return (
            f"{accepted[0].reason} ({kinds}): the policy is missing, not bound, or of other kinds; "
            f"install it: ringleader fence {ring} | kubectl apply --server-side -f -"
        )
    labelled = [verdict for verdict in verdicts if verdict.policy == policies_of(ring)[0]]
    if not any(verdict.found == "fenced" for verdict in labelled):
        return "the fence cannot be probed: " + "; ".join(f"{each.kind}: {each.reason}" for each in labelled)
    return ""


class FenceWait:
    """Looks at the fence of the ring of *keys* for *kinds* until it acts on each API server."""

    def __init__(
        self,
        client: Client,
        keys: RingKeys,
        kinds: Iterable[ApiResource],
        *,
        namespaces: Sequence[str],
        host: Host,
        instead: str,
    ) -> None:
        """*instead*: how a shard works without the fence, for the log."""
        self._client = client
        self._keys = keys
        self._kinds = tuple(kinds)
        self._namespaces = namespaces
        self._host = host
        self._instead = instead
        self.problem = "it was not probed yet"
        """Why this shard is not fenced; empty once it is."""

    async def wait(self) -> User:
        """Wait until every API server that can be told apart refuses a foreign life; the account to act as.

        Raises: KubeError without an answer.
        """
        while True:
            account, found = await self._look()
            if account is not None and not found:
                self.problem = ""
                log.info("fenced by policies", ring=self._keys.ring, account=account.username)
                return account
            if found != self.problem:
                self.problem = found
                log.error(
                    "not fenced by policies",
                    ring=self._keys.ring,
                    problem=found,
                    holds=f"this shard takes no objects; {self._instead}",
                )
            await asyncio.sleep(jittered_s(_AGAIN_S, self._host.rng, jitter=0.2))

    async def _look(self) -> tuple[User | None, str]:
        """The account, if it is known, and why it is not fenced."""
        try:
            account = await read_own_account(self._client)
            probe = FenceProbe(self._keys, account, namespaces=self._namespaces)
            await probe.check_rights(self._client)
            servers = await each_server(self._client.cluster)
            if len(servers) == 1:
                return account, self._judged(await probe.judge(self._client, self._kinds))
            for server in servers:
                async with self._host.client(
                    server, user_agent="ringleader/fence", max_connections=1
                ) as client:
                    if found := self._judged(await probe.judge(client, self._kinds)):
                        return account, f"{server.server}: {found}"
        except MissingRight as error:
            return None, str(error)
        except ApiError as error:
            return None, str(error)
        return account, ""

    def _judged(self, verdicts: Sequence[Verdict]) -> str:
        found = problem_of(verdicts, self._keys.ring)
        if not found and (unknown := [each for each in verdicts if each.found == "unknown"]):
            log.warning(
                "fence not probed for some kinds",
                kinds=list(dict.fromkeys(each.kind for each in unknown)),
                reason=unknown[0].reason,
                remedy="grant get on validatingadmissionpolicies and validatingadmissionpolicybindings "
                + ", ".join(policies_of(self._keys.ring)),
            )
        return found
