"""Every endpoint, by path.

Builds the parts of the control plane and joins them; holds no connection. Answers are bytes or a `Watch`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import msgspec

from devcluster.accounts import Account
from devcluster.embedded import discovery, openapi, reads, reviews
from devcluster.embedded.builtin import add_builtins
from devcluster.embedded.collector import Collector
from devcluster.embedded.definitions import served_kind
from devcluster.embedded.definitions import warnings as definition_warnings
from devcluster.embedded.deletion import parse_delete_options
from devcluster.embedded.objects import decode_body
from devcluster.embedded.paths import Target, parse_target
from devcluster.embedded.rbac import GROUP, Authorizer, default_objects, impersonation
from devcluster.embedded.registry import Kind, Registry
from devcluster.embedded.shapes import Shape, media_ranges, wanted_shape
from devcluster.embedded.status import (
    bad_request,
    no_such_path,
    unsupported_verb,
)
from devcluster.embedded.store import Collection, Entry, Event, Versions
from devcluster.embedded.watches import Watch
from devcluster.embedded.writelog import WriteLog
from devcluster.embedded.writes import Request, Writes, Written
from kubeio.rest.request_info import BadTarget, is_true, request_info

JSON: Final = "application/json"
_IGNORED: Final = frozenset({"pretty", "timeout", "fieldManager", "force", "timeoutSeconds", "watch"})
_LIST: Final = frozenset(
    {
        "labelSelector",
        "fieldSelector",
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "allowWatchBookmarks",
        "sendInitialEvents",
        "includeObject",
    }
)
_WRITE: Final = frozenset({"dryRun", "fieldValidation", "includeObject"})
_DELETE: Final = frozenset({"propagationPolicy", "gracePeriodSeconds", "orphanDependents", "dryRun"})
_PARAMETERS: Final = {
    "get": frozenset({"resourceVersion", "includeObject"}) | _IGNORED,
    "list": _LIST | _IGNORED,
    "watch": _LIST | _IGNORED,
    "create": _WRITE | _IGNORED,
    "update": _WRITE | _IGNORED,
    "patch": _WRITE | _IGNORED,
    "delete": _DELETE | _IGNORED,
    "deletecollection": _DELETE | _LIST | _IGNORED,
}


class Call(msgspec.Struct, frozen=True):
    """One HTTP request, read."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    content_type: str
    accept: str
    user_agent: str
    account: Account


class Answer(msgspec.Struct, frozen=True):
    """One HTTP answer, whole."""

    body: bytes
    code: int = 200
    content_type: str = JSON
    warnings: tuple[str, ...] = ()


class Endpoints:
    """A control plane without its connections."""

    def __init__(
        self,
        *,
        log: WriteLog,
        history_limit: int,
        rbac: bool,
        url: str,
        wake_collector: Callable[[], None],
        account_of: Callable[[str], Account | None],
        wall: Callable[[], float] = time.time,
        new_uid: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self._account_of: Final = account_of
        self.versions: Final = Versions()
        self.registry: Final = Registry()
        self._url: Final = url
        self._history_limit: Final = history_limit
        self._targets: Final[dict[str, Target]] = {}
        self._targets_of = 0
        add_builtins(self.registry, self.versions, history_limit=history_limit)
        self._namespaces: Final = self._builtin("", "namespaces")
        self._definitions: Final = self._builtin("apiextensions.k8s.io", "customresourcedefinitions")
        self.writes: Final = Writes(
            versions=self.versions,
            log=log,
            now=lambda: timestamp(wall()),
            new_uid=new_uid,
            namespace_of=self._namespace,
        )
        self.collector: Final = Collector(self.registry, self.writes, wake=wake_collector)
        for kind in self.registry:
            self.collector.follow(kind)
        self._definitions.collection.listeners.append(self._on_definition)
        self._create_namespaces()
        self._authorizer: Final = Authorizer(self.registry) if rbac else None
        if rbac:
            self._create_roles()

    def authorize(self, account: Account, method: str, target: str) -> None:
        """Raises: 403 if RBAC is on and *account* may not do *method* on *target*; 400 if that is no target."""
        if self._authorizer is not None and not account.is_admin:
            try:
                info = request_info(method, target)
            except BadTarget as error:
                raise bad_request(str(error)) from None
            self._authorizer.check(account, info)

    def impersonate(self, account: Account, user: str, groups: tuple[str, ...]) -> Account:
        """*user* with *groups*. Raises: 403 if RBAC is on and *account* may not impersonate them."""
        if self._authorizer is not None and not account.is_admin:
            for info in impersonation(user, groups):
                self._authorizer.check(account, info)
        return Account(user, groups)

    def target(self, path: str) -> Target | None:
        """What *path* names, or None for a path that is about no resource. Raises: 404.

        Collections are remembered: the next object of one costs no parsing.
        """
        if self._targets_of != self.registry.generation:
            self._targets.clear()
            self._targets_of = self.registry.generation
        if (target := self._targets.get(path)) is not None:
            return target
        head, _, name = path.rpartition("/")
        if (found := self._targets.get(head)) is not None and name and "%" not in name:
            return Target(found.kind, found.version, found.namespace, name, "")
        if not is_resource_path(path):
            return None
        target = parse_target(path, self.registry)
        if not target.name and (target.namespace or not target.kind.namespaced):
            self._targets[path] = target
        return target

    def serve(self, call: Call, target: Target | None, verb: str) -> Answer | Watch:
        """Carry out *call*. Raises: Refusal."""
        if target is None:
            return self._serve_other(call)
        _check_parameters(call, verb)
        shape = wanted_shape(call.accept)
        match verb:
            case "get":
                return Answer(reads.get(target, shape))
            case "list":
                return Answer(reads.list_page(target, call.query, shape))
            case "watch":
                return Watch(target, call.query, shape)
        return self._serve_write(call, target, verb, shape)

    def _serve_write(self, call: Call, target: Target, verb: str, shape: Shape) -> Answer:
        request = Request(
            call.account.user,
            dry_run=is_dry_run(call.query.get("dryRun", "")),
            field_validation=call.query.get("fieldValidation", ""),
            content_type=call.content_type,
            field_manager=call.query.get("fieldManager", ""),
            manager=call.query.get("fieldManager") or call.user_agent.partition("/")[0][:128] or "unknown",
            force=call.query.get("force") in ("true", "1"),
        )
        if verb in ("delete", "deletecollection"):
            return self._serve_delete(call, target, verb, request, shape)
        if verb == "patch":
            written = self.writes.patch(target, request, call.body)
        else:
            doc = decode_body(call.body, call.content_type)
            write = self.writes.create if verb == "create" else self.writes.update
            written = write(target, request, doc)
        warnings: tuple[str, ...] = ()
        if written.dropped and request.field_validation != "Ignore":
            warnings = tuple(f'unknown field "{field}"' for field in written.dropped)
        if target.kind is self._definitions and (served := self._served_by(written)):
            warnings += definition_warnings(served)
        return Answer(reads.one(target, written.entry, shape), written.code, warnings=warnings)

    def _serve_delete(self, call: Call, target: Target, verb: str, request: Request, shape: Shape) -> Answer:
        options = parse_delete_options(call.body, call.query)
        if options.dry_run:
            request = msgspec.structs.replace(request, dry_run=is_dry_run(",".join(options.dry_run)))
        if verb == "deletecollection":
            gone = self.writes.delete_collection(target, request, call.query, options)
            items = [msgspec.Raw(reads.one(target, written.entry, Shape.OBJECT)) for written in gone]
            return Answer(
                msgspec.json.encode(
                    {
                        "kind": target.kind.list_kind,
                        "apiVersion": target.kind.api_version(target.version.name),
                        "metadata": {"resourceVersion": str(self.versions.current)},
                        "items": items,
                    }
                )
            )
        written = self.writes.delete(target, request, options)
        if not written.removed:
            return Answer(reads.one(target, written.entry, shape))
        return Answer(msgspec.json.encode(_deleted(target, written)))

    def _serve_other(self, call: Call) -> Answer:
        path = call.path.rstrip("/") or "/"
        if call.method == "POST" and path in reviews.KINDS:
            return Answer(self._review(call, path), 201)
        if call.method not in ("GET", "HEAD"):
            raise unsupported_verb()
        if path in ("/healthz", "/livez", "/readyz"):
            return Answer(b"ok", content_type="text/plain; charset=utf-8")
        if path in ("/api", "/apis") and (version := _aggregated_version(call.accept)):
            body = discovery.aggregated(self.registry, core=path == "/api", version=version)
            named = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
            return Answer(msgspec.json.encode(body), content_type=named)
        found = self._document(path)
        if found is None:
            raise no_such_path()
        return Answer(msgspec.json.encode(found))

    def _review(self, call: Call, path: str) -> bytes:
        doc = decode_body(call.body, call.content_type)
        return reviews.answer(
            path, doc, call.account, account_of=self._account_of, authorizer=self._authorizer
        )

    def _document(self, path: str) -> dict[str, object] | None:
        parts = path.strip("/").split("/")
        match parts:
            case ["version"]:
                return discovery.VERSION
            case ["api"]:
                return discovery.core_versions(self._url)
            case ["apis"]:
                return discovery.group_list(self.registry)
            case ["apis", name]:
                return discovery.group(self.registry, name)
            case ["api", version]:
                return discovery.resource_list(self.registry, "", version)
            case ["apis", name, version] if name:
                return discovery.resource_list(self.registry, name, version)
            case ["openapi", "v3", *rest]:
                return openapi.find(self.registry, rest)
            case [""]:
                return {
                    "paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
                }
        return None

    def _builtin(self, group: str, plural: str) -> Kind:
        kind = self.registry.get(group, plural)
        if kind is None:
            raise LookupError(f"{plural} is a built-in resource")
        return kind

    def _namespace(self, name: str) -> Entry | None:
        return self._namespaces.collection.get(("", name))

    def _create_namespaces(self) -> None:
        target = Target(self._namespaces, self._namespaces.versions["v1"], "", "", "")
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.writes.create(
                target, Request("system:apiserver", manager="kube-apiserver"), {"metadata": {"name": name}}
            )

    def _create_roles(self) -> None:
        request = Request("system:apiserver", manager="kube-apiserver")
        for plural, body in default_objects():
            kind = self._builtin(GROUP, plural)
            self.writes.create(Target(kind, kind.versions["v1"], "", "", ""), request, body)

    def _served_by(self, definition: Written) -> Kind | None:
        """The kind that a stored *definition* serves now."""
        spec = definition.entry.decoded()["spec"]
        return self.registry.get(spec["group"], spec["names"]["plural"])

    def _on_definition(self, event: Event) -> None:
        """A CRD came, changed or went: so does its kind. Its objects outlast a change."""
        entry = event.new or event.old
        if entry is None:
            return
        doc = entry.decoded()
        group, plural = doc["spec"]["group"], doc["spec"]["names"]["plural"]
        known = self.registry.get(group, plural)
        if event.new is None:
            self.registry.remove(group, plural)
            if known is not None:
                known.collection.end()
            return
        collection = (
            known.collection if known else Collection(self.versions, history_limit=self._history_limit)
        )
        kind = served_kind(doc, collection)
        self.registry.add(kind)
        self.collector.follow(kind)


def is_resource_path(path: str) -> bool:
    parts = path.strip("/").split("/")
    if path.rstrip("/") in reviews.KINDS:
        return False
    return (parts[0] == "api" and len(parts) > 2) or (parts[0] == "apis" and len(parts) > 3)


def verb_of(method: str, target: Target | None, query: dict[str, str]) -> str:
    """Kubernetes' verb for *method* on *target*. Raises: 405."""
    if target is None:
        return "get"
    match method, bool(target.name):
        case "GET" | "HEAD", named:
            if is_true(query.get("watch")):
                return "watch"
            return "get" if named else "list"
        case "POST", False if target.namespace or not target.kind.namespaced:
            return "create"
        case "PUT", True:
            return "update"
        case "PATCH", True:
            return "patch"
        case "DELETE", named if not target.subresource:
            return "delete" if named else "deletecollection"
    raise unsupported_verb()


def timestamp(wall: float) -> str:
    """*wall*, in seconds since 1970, as metadata has it."""
    return _formatted(int(wall))


@lru_cache(maxsize=8)
def _formatted(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def is_dry_run(text: str) -> bool:
    if text not in ("", "All"):
        raise bad_request(f'dryRun: Unsupported value: "{text}": supported values: "All"')
    return text == "All"


def _check_parameters(call: Call, verb: str) -> None:
    for name in call.query:
        if name not in _PARAMETERS[verb]:
            raise bad_request(
                f"the query parameter {name!r} is not served by the embedded control plane for {verb}"
            )


def _deleted(target: Target, written: Written) -> dict[str, object]:
    details = {**target.kind.subject(written.entry.name).details(), "uid": written.entry.uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _aggregated_version(accept: str) -> str:
    """v2 or v2beta1 when the client takes aggregated discovery."""
    for media, parameters in media_ranges(accept):
        version = parameters.get("v", "")
        if media == JSON and parameters.get("as") == "APIGroupDiscoveryList" and version in ("v2", "v2beta1"):
            return version
    return ""
