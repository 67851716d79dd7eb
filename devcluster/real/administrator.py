"""The few requests that a control plane's own administrator sends: is it ready, let these in, a token please.

Talks to one server that has just been started; everything else that talks to an API server is `kubeio`'s.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import aiohttp

_TIMEOUT = aiohttp.ClientTimeout(total=10)


class Administrator:
    """Requests by a token of `system:masters`; each on a connection of its own."""

    def __init__(self, url: str, *, token: str, authority_pem: bytes) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}
        self._ssl = ssl.create_default_context(cadata=authority_pem.decode())

    async def is_ready(self) -> bool:
        """Whether the server answers, has done all it does at its start, and has a namespace to work in."""
        try:
            for path in ("/readyz", "/api/v1/namespaces/default"):
                await self._request("GET", path)
        except (aiohttp.ClientError, TimeoutError):
            return False
        return True

    async def allow_everything(self, group: str) -> None:
        """Bind *group* to the role cluster-admin."""
        await self._request(
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {
                "metadata": {"name": group},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "cluster-admin",
                },
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
            },
        )

    async def request_token(self, namespace: str, name: str, *, lifetime_s: int) -> str:
        """A token of the ServiceAccount *name*.

        Raises: aiohttp.ClientResponseError, with status 404 if there is no such account.
        """
        answer = await self._request(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": lifetime_s},
            },
        )
        status = answer["status"]
        if not isinstance(status, dict):
            raise TypeError(f"a TokenRequest was answered without a status: {answer!r}")
        return str(status["token"])

    async def _request(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        async with (
            aiohttp.ClientSession(headers=self._headers, timeout=_TIMEOUT, trust_env=False) as session,
            session.request(
                method, self._url + path, json=body, ssl=self._ssl, raise_for_status=True
            ) as response,
        ):
            if "json" not in response.headers.get("Content-Type", ""):
                return {}
            answer: dict[str, object] = await response.json()
            return answer
