"""Orders of the administrator to a server of `devcluster`, by plain HTTPS requests, each on a connection of its own."""

from __future__ import annotations

import asyncio
import http.client
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from devcluster.accounts import ADMIN, issue_token
from devcluster.children import PlaneFailed


class Orders:
    """Requests to *url*, whose certificate the authority in the file *ca* signed, with a token signed with *key*."""

    def __init__(self, url: str, *, ca: Path, key: bytes) -> None:
        self._url = urlsplit(url)
        self._ca = ca
        self._token = issue_token(key, ADMIN.user, ADMIN.groups)

    async def send(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Raises: PlaneFailed with the server's message."""
        return await asyncio.to_thread(self._send, method, path, body)

    async def is_ready(self) -> bool:
        """Whether the server answers /readyz with ok."""
        try:
            await self.send("GET", "/readyz")
        except (OSError, http.client.HTTPException, PlaneFailed):
            return False
        return True

    def _send(self, method: str, path: str, body: bytes) -> bytes:
        tls = ssl.create_default_context(cafile=str(self._ca))
        where = self._url
        connection = http.client.HTTPSConnection(str(where.hostname), where.port, context=tls, timeout=30.0)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= 400:
            raise PlaneFailed(f"{method} {path}: {answer.status} {content.decode()}")
        return content
