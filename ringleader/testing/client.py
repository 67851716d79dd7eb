"""A client that shares no code with what it observes: one kubeconfig, aiohttp, plain JSON.

Owns its session. The harness creates, changes and reads objects through it, so that a fault in `kubeio`
cannot hide a fault of the fleet. Not a client for controllers: it neither watches nor retries.
"""

from __future__ import annotations

import base64
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec
import yaml

from kubeio.resource import ApiResource

Doc = dict[str, Any]
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
MERGE_PATCH = "application/merge-patch+json"


class RequestFailedError(Exception):
    """The server refused a request of the harness."""

    def __init__(self, attempted: str, status: int, message: str) -> None:
        self.attempted = attempted
        self.status = status
        self.message = message
        super().__init__(f"{attempted}: {status}: {message}")


class IndependentClient:
    """Talks to one API server as the user of one kubeconfig. An async context. *headers* go with each request."""

    def __init__(
        self, kubeconfig: Path, *, timeout_s: float = 30.0, headers: Mapping[str, str] | None = None
    ) -> None:
        self._server, own, self._tls = _read_kubeconfig(kubeconfig)
        self._headers = {**own, **(headers or {})}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            timeout=self._timeout,
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=64),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Doc:
        """Send one request and give the decoded answer.

        Raises: RequestFailedError on a status of 400 or more, aiohttp.ClientError when there is no answer.
        """
        if self._session is None:
            raise RuntimeError("the client is used inside `async with` only")
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Accept": accept} | ({"Content-Type": content_type} if data else {})
        url = self._server + path
        async with self._session.request(method, url, params=query, data=data, headers=headers) as answer:
            raw = await answer.read()
            if answer.status >= 400:
                raise RequestFailedError(f"{method} {path}", answer.status, _message(raw))
            doc: Doc = msgspec.json.decode(raw)
            return doc

    async def create(self, resource: ApiResource, obj: Doc, *, namespace: str = "") -> Doc:
        return await self.request("POST", resource.path(namespace=namespace), body=obj)

    async def create_if_absent(self, resource: ApiResource, obj: Doc, *, namespace: str = "") -> None:
        """Create *obj*; one of that name that exists already is left as it is."""
        try:
            await self.create(resource, obj, namespace=namespace)
        except RequestFailedError as error:
            if error.status != 409:
                raise

    async def get(self, resource: ApiResource, name: str, *, namespace: str = "") -> Doc:
        return await self.request("GET", resource.path(namespace=namespace, name=name))

    async def merge(self, resource: ApiResource, name: str, patch: Doc, *, namespace: str = "") -> Doc:
        """Merge *patch* into the object without any condition, as a person with kubectl does."""
        path = resource.path(namespace=namespace, name=name)
        return await self.request("PATCH", path, body=patch, content_type=MERGE_PATCH)

    async def delete(self, resource: ApiResource, name: str, *, namespace: str = "") -> None:
        await self.request("DELETE", resource.path(namespace=namespace, name=name))

    async def list_all(
        self, resource: ApiResource, *, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> list[Doc]:
        """Every object, in one consistent read by pages."""
        accept = METADATA_LIST if metadata_only else "application/json"
        query = {"limit": "500"} | ({"labelSelector": selector} if selector else {})
        items: list[Doc] = []
        while True:
            page = await self.request("GET", resource.path(namespace=namespace), query=query, accept=accept)
            items.extend(page["items"] or [])  # a real server says null for none
            token = page["metadata"].get("continue")
            if not token:
                return items
            query["continue"] = token


def _message(raw: bytes) -> str:
    try:
        status = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return raw[:200].decode(errors="replace")
    return str(status.get("message", status)) if isinstance(status, dict) else str(status)


def _read_kubeconfig(path: Path) -> tuple[str, dict[str, str], ssl.SSLContext]:
    """Server, headers and TLS context of the current context of *path*."""
    config = yaml.safe_load(path.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    tls = ssl.create_default_context(cadata=_material(cluster, "certificate-authority", path).decode())
    if "client-certificate-data" in user or "client-certificate" in user:
        _load_certificate(tls, user, path)
    token = Path(user["tokenFile"]).read_text() if "tokenFile" in user else user.get("token")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return cluster["server"].rstrip("/"), headers, tls


def _named(entries: list[Doc], name: str) -> Doc:
    return next(entry for entry in entries if entry["name"] == name)


def _material(section: Doc, key: str, base: Path) -> bytes:
    """What `KEY-data` holds, or the file that `KEY` names relative to the kubeconfig."""
    inline = section.get(f"{key}-data")
    return base64.b64decode(inline) if inline else (base.parent / section[key]).read_bytes()


def _load_certificate(tls: ssl.SSLContext, user: Doc, base: Path) -> None:
    with tempfile.NamedTemporaryFile(suffix=".pem") as pem:  # the ssl module reads files only
        pem.write(_material(user, "client-certificate", base) + b"\n" + _material(user, "client-key", base))
        pem.flush()
        tls.load_cert_chain(pem.name)
