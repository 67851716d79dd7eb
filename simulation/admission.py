"""Admission of what users create: the API servers ask a sharder, and store the object whatever it answers.

Certificates are made and renewed as they are; that a handshake goes well is not simulated.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from devcluster.embedded.managed_fields import encode_fields, subtree
from devcluster.embedded.patches import apply_patch
from kubeio.program.http_server import Handler, HttpRequest, Reply
from sharder.admission.review import KIND, VERSION
from simulation.network import Network
from simulation.process import Process
from simulation.scale import KEYS
from simulation.store import Store
from simulation.world import World

Doc = dict[str, Any]
_CONFIGURATIONS: Final = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
CONFIGURATIONS_DEFINITION: Final[Doc] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": ".".join(reversed(_CONFIGURATIONS))},
    "spec": {
        "group": _CONFIGURATIONS[0],
        "scope": "Cluster",
        "names": {
            "plural": _CONFIGURATIONS[1],
            "singular": "mutatingwebhookconfiguration",
            "kind": "MutatingWebhookConfiguration",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}
"""A real server has them built in."""


class Admission:
    """The webhooks of *store*, as API servers call them. *sharders*: processes behind the Service, what they serve."""

    def __init__(
        self,
        world: World,
        network: Network,
        store: Store,
        sharders: Callable[[], Sequence[tuple[Process, Handler]]],
        *,
        on_label: Callable[[str, float], None],
    ) -> None:
        """*on_label* gets the owner that an answer names, and when it was asked for."""
        self.longest_s = 0.0
        """So long after the answer an object is stored at most: what other webhooks and etcd take."""
        self._on_label: Final = on_label
        self._world: Final = world
        self._network: Final = network
        self._store: Final = store
        self._sharders: Final = sharders
        self._rng: Final = world.rng("admission")

    def create(self, path: str, doc: Doc, store: Callable[[Doc], object]) -> None:
        """Have *store* called with *doc*, to be created at *path*: with an owner if a sharder names one in time."""
        webhook = next(self._webhooks(path, doc), None)
        found = self._sharders() if webhook is not None else ()
        if webhook is None or not found:
            store(doc)
            return
        process, handler = self._rng.choice(found)
        asked = _Asked(partial(self._store_later, store), doc)
        if process.has_ended:
            asked.give_up()
        elif self._network.reaches(process, self._network.choose()):
            request = HttpRequest("POST", webhook["clientConfig"]["service"]["path"], body=_review(path, doc))
            ask = partial(self._ask, process, handler, request, asked)
            self._world.after(self._network.latency_s(), partial(process.deliver, process.main_loop, ask))
        self._world.after(webhook["timeoutSeconds"], asked.give_up)

    def _ask(self, process: Process, handler: Handler, request: HttpRequest, asked: _Asked) -> None:
        """On the loop of *process*."""
        asked_at = self._world.now
        task = process.main_loop.create_task(_answer(handler, request), name="admission")

        def answered(_: object) -> None:
            if not process.has_ended and not task.cancelled():
                self._world.after(
                    self._network.latency_s(), partial(self._take, task.result(), asked, asked_at)
                )

        task.add_done_callback(answered)

    def _take(self, reply: Reply, asked: _Asked, asked_at: float) -> None:
        if asked.is_over or reply.status != 200:
            asked.give_up()
            return
        response = msgspec.json.decode(reply.body)["response"]
        doc = asked.doc
        if "patch" in response:
            patch = base64.b64decode(response["patch"])
            doc = apply_patch("application/json-patch+json", patch, doc, strategic=False)
            owner = doc["metadata"]["labels"][KEYS.shard]
            self._world.note(f"admission of {doc['metadata']['name']}: shard={owner}")
            self._on_label(owner, asked_at)
        asked.answer(doc)

    def _store_later(self, store: Callable[[Doc], object], doc: Doc) -> None:
        if self.longest_s:
            self._world.after(self._rng.uniform(0, self.longest_s), lambda: store(doc))
        else:
            store(doc)

    def _webhooks(self, path: str, doc: Doc) -> Iterator[Doc]:
        """The webhooks that are to be asked about *doc*."""
        kind = self._store.endpoints.registry.get(*_CONFIGURATIONS)
        target = self._store.endpoints.target(path)
        if kind is None or target is None:
            return
        namespace = self._store.kind("", "namespaces").collection.get(("", target.namespace))
        if namespace is None:
            return
        labels = doc["metadata"].get("labels") or {}
        about = ([target.kind.group], [target.kind.plural])
        for entry in kind.collection.entries():
            for webhook in entry.decoded()["webhooks"]:
                is_asked = about in [(rule["apiGroups"], rule["resources"]) for rule in webhook["rules"]]
                selects = _selects(webhook["namespaceSelector"], namespace.labels)
                if is_asked and selects and _selects(webhook["objectSelector"], labels):
                    yield webhook


class _Asked:
    """One create that waits for an answer, once."""

    def __init__(self, store: Callable[[Doc], object], doc: Doc) -> None:
        self.doc: Final = doc
        self.is_over = False
        self._store: Final = store

    def answer(self, doc: Doc) -> None:
        self.is_over = True
        self._store(doc)

    def give_up(self) -> None:
        """The failure policy is to ignore that."""
        if not self.is_over:
            self.answer(self.doc)


async def _answer(handler: Handler, request: HttpRequest) -> Reply:
    answer = await handler(request)
    if not isinstance(answer, Reply):
        raise TypeError("a review is answered whole")
    return answer


def _review(path: str, doc: Doc) -> bytes:
    """The review of *doc*, with the managedFields that the API server gives it."""
    parts = path.strip("/").split("/")
    written = {name: value for name, value in doc.items() if name not in ("apiVersion", "kind")}
    entry = {
        "manager": "user",
        "operation": "Update",
        "apiVersion": doc["apiVersion"],
        "fieldsType": "FieldsV1",
        "fieldsV1": encode_fields(subtree(written, (), is_builtin=False) - {()}),
    }
    request = {
        "uid": "review",
        "operation": "CREATE",
        "resource": {"group": parts[1], "version": parts[2], "resource": parts[-1]},
        "namespace": parts[4],
        "object": {**doc, "metadata": {**doc["metadata"], "managedFields": [entry]}},
    }
    return msgspec.json.encode({"apiVersion": VERSION, "kind": KIND, "request": request})


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector with the operators of our configurations selects *labels*."""
    is_there = {"Exists": True, "DoesNotExist": False}
    return all(
        labels.get(name) == value for name, value in (selector.get("matchLabels") or {}).items()
    ) and all(
        (each["key"] in labels) is is_there[each["operator"]]
        for each in selector.get("matchExpressions") or ()
    )
