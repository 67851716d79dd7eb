"""An API client that owes nothing to `kubeio`: what the contract suite sees through it, it sees independently."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"

WEBSITES = "/apis/example.com/v1"
CORE = "/api/v1"
LEASES = "/apis/coordination.k8s.io/v1"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def meta(self) -> Any:
        return self.body["metadata"]

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.body["metadata"].get("labels", {}))

    @property
    def message(self) -> str:
        return str(self.body["message"])

    @property
    def names(self) -> list[str]:
        """Of the objects of a list."""
        return [item["metadata"]["name"] for item in self.body["items"]]

    def check(
        self, status: int, *, reason: str = "", field: str = "", says: str = "", message: str = ""
    ) -> Answer:
        """This answer, if it has the *status*; and of a failure: its *reason*, its first cause's *field*, its words."""
        assert self.status == status, f"{self.status} instead of {status}: {self.text[:600]}"
        assert not reason or self.body["reason"] == reason
        assert not field or self.body["details"]["causes"][0]["field"] == field
        assert not says or says in self.message
        assert not message or self.message == message
        return self


@dataclass
class Watch:
    """An open watch: what came, one event at a time."""

    status: int
    headers: Mapping[str, str]
    content: aiohttp.StreamReader
    seen: list[dict[str, Any]] = field(default_factory=list)

    async def next(self, timeout_s: float = 10.0) -> dict[str, Any]:
        """The next event; TimeoutError if none comes."""
        line = await asyncio.wait_for(self.content.readline(), timeout_s)
        if not line:
            raise EOFError("the watch has ended")
        event: dict[str, Any] = json.loads(line)
        self.seen.append(event)
        return event

    async def short(self, timeout_s: float = 10.0) -> tuple[str, str]:
        """Type and object name of the next event."""
        event = await self.next(timeout_s)
        return event["type"], event["object"]["metadata"]["name"]

    async def is_silent(self, for_s: float = 0.4) -> bool:
        """Whether nothing comes for a while."""
        try:
            event = await self.next(for_s)
        except TimeoutError:
            return True
        raise AssertionError(f"an event came: {json.dumps(event)[:600]}")

    async def until_end(self) -> list[dict[str, Any]]:
        """What comes until the server ends the watch."""
        with contextlib.suppress(EOFError):
            while True:
                await self.next()
        return self.seen


class Api:
    """Requests by one account."""

    def __init__(self, session: aiohttp.ClientSession, url: str, tls: ssl.SSLContext) -> None:
        self._session = session
        self._tls = tls
        self.url = url

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        all_headers = {"Accept": accept} | ({"Content-Type": content_type} if data is not None else {})
        async with self._session.request(
            method,
            self.url + path,
            data=data,
            params=dict(query or {}),
            headers=all_headers | dict(headers or {}),
            ssl=self._tls,
            timeout=aiohttp.ClientTimeout(total=30),
        ) as response:
            return Answer(response.status, dict(response.headers), await response.text())

    async def get(self, path: str, *, accept: str = "application/json", **query: str) -> Answer:
        return await self.request("GET", path, query=_query(query), accept=accept)

    async def post(self, path: str, body: object, **query: str) -> Answer:
        return await self.request("POST", path, body, query=_query(query))

    async def put(self, path: str, body: object, **query: str) -> Answer:
        return await self.request("PUT", path, body, query=_query(query))

    async def delete(self, path: str, body: object = None, **query: str) -> Answer:
        return await self.request("DELETE", path, body, query=_query(query))

    async def merge(self, path: str, body: object, **query: str) -> Answer:
        return await self.request("PATCH", path, body, query=_query(query), content_type=MERGE_PATCH)

    async def json_patch(
        self, path: str, *operations: dict[str, object], accept: str = "application/json", **query: str
    ) -> Answer:
        return await self.request(
            "PATCH", path, list(operations), query=_query(query), content_type=JSON_PATCH, accept=accept
        )

    async def apply(self, path: str, body: object, **query: str) -> Answer:
        return await self.request(
            "PATCH", path, body, query={"fieldManager": "contract"} | _query(query), content_type=APPLY_PATCH
        )

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, *, accept: str = "application/json", **query: str
    ) -> AsyncIterator[Watch]:
        """A watch of *path*; begins when the server has answered."""
        async with self._session.get(
            self.url + path,
            params={"watch": "true", "timeoutSeconds": "60"} | _query(query),
            headers={"Accept": accept, "Accept-Encoding": "identity"},
            ssl=self._tls,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        ) as response:
            yield Watch(response.status, dict(response.headers), response.content)


def _query(words: Mapping[str, str]) -> dict[str, str]:
    """`continue_` is a keyword of Python's; `labelSelector` and others stand as they are."""
    return {name.removesuffix("_"): value for name, value in words.items()}


@contextlib.asynccontextmanager
async def api_from(kubeconfig: Path) -> AsyncIterator[Api]:
    """Requests with the credentials of *kubeconfig*, read by hand."""
    cluster, user = _read(kubeconfig)
    tls = _tls(cluster, user)
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=headers, connector=connector, trust_env=False) as session:
        yield Api(session, cluster["server"], tls)


def _read(kubeconfig: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The only cluster and the only user of *kubeconfig*."""
    document = yaml.safe_load(kubeconfig.read_text())
    return document["clusters"][0]["cluster"], document["users"][0]["user"]


def _tls(cluster: dict[str, str], user: dict[str, str]) -> ssl.SSLContext:
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    tls = ssl.create_default_context(cadata=authority)
    if "client-certificate-data" in user:
        with tempfile.TemporaryDirectory() as scratch:
            pem = Path(scratch, "pair.pem")
            pair = (user["client-certificate-data"], user["client-key-data"])
            pem.write_bytes(b"".join(base64.b64decode(part) for part in pair))
            tls.load_cert_chain(pem)
    return tls
