"""RequestInfo against Go's own resolver: no request means one thing here and another to the API server."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from devcluster.real.binaries import BinariesMissing, ensure_binaries
from devcluster.real.recipes import request_info_recipe
from kubeio.rest.request_info import BadTarget, first_values, request_info

REQUESTS = 20_000
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get"]
PARTS = [
    *("api", "apis", "v1", "apps", "pods", "namespaces", "default", "status", "finalize", "watch", "proxy"),
    *(
        "",
        ".",
        "..",
        "%2F",
        "a%2Fb",
        "%70ods",
        "%",
        "%zz",
        "%00",
        "nämé",
        "a;b",
        "a+b",
        "a=b",
        "x&y",
        "#",
        "@",
        ":80",
        "%25",
    ),
]
NAMES = [
    "watch",
    "fieldSelector",
    "labelSelector",
    "w%61tch",
    "limit",
    "resourceVersion",
    "Watch",
    "pretty",
    "watch;a",
    "",
]
VALUES = [
    *("", "0", "1", "true", "false", "FALSE", "False", "fal%C5%BFe", "2", "%", "%zz", "a;b", "a=b", "+", "x+y"),
    *("==", "\\"),
    *("metadata.name=x", "metadata.name==x", "metadata.name!=x", "metadata.name=x,a=b", "a=b,metadata.name=x"),
    *("metadata.name=a%5C,b", "metadata.name=a%5Cq", "metadata.name=..", "metadata.name=a%2Fb", "metadata.name"),
    *("b!=c,metadata.name=y,metadata.name=x", ",,metadata.name=x,", "metadata.name=", "%20metadata.name=x"),
    "a%3D%5C%5C",
]  # fmt: skip


@pytest.fixture(scope="module")
def resolver() -> Path:
    try:
        return ensure_binaries(["requestinfo"], request_info_recipe())["requestinfo"]
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


def make_target(rng: random.Random) -> str:
    """A target near to those of real requests: a path out of likely and unlikely parts, and a query of them."""
    start = rng.choice(
        [["api", "v1"], ["apis", "apps", "v1"], ["api"], ["apis", "apps"], [], ["", "api", "v1"]]
    )
    scope = rng.choice(
        [[], ["namespaces", "default"], ["namespaces"], ["watch"], ["watch", "namespaces", "a"]]
    )
    rest = [rng.choice(PARTS) for _ in range(rng.randrange(5))]
    path = "/" + "/".join(start + scope + rest) + rng.choice(["", "", "/", "//"])
    if rng.random() < 0.05:
        path = quote(path, safe=rng.choice(["/", "", "%"]))
    pieces = [
        f"{rng.choice(NAMES)}{rng.choice(['=', '=', '=', '', '=='])}{rng.choice(VALUES)}"
        for _ in range(rng.randrange(4))
    ]
    return path + (
        "?" + rng.choice(["&", "&", "&&", ";"]).join(pieces) if pieces else rng.choice(["", "", "?"])
    )


def resolved(resolver: Path, questions: list[dict[str, str]]) -> list[dict[str, Any]]:
    run = subprocess.run(
        [resolver],
        input="\n".join(map(json.dumps, questions)),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [json.loads(line) for line in run.stdout.splitlines()]


def difference(method: str, target: str, answer: dict[str, Any]) -> str:
    """Where we and Go disagree about a request; empty if we agree."""
    try:
        ours = request_info(method, target)
    except BadTarget:
        return "" if answer["refused"] else "only we refuse it"
    if answer["refused"]:
        # Go's server refuses more; the relay passes it on, and the answer with it
        return ""
    theirs = answer["info"]
    fields = {
        "verb": (ours.verb, theirs["Verb"]),
        "path": (ours.path, theirs["Path"]),
        "group": (ours.group, theirs["APIGroup"]),
        "resource": (ours.resource, theirs["Resource"]),
        "subresource": (ours.subresource, theirs["Subresource"]),
        "namespace": (ours.namespace, theirs["Namespace"]),
        "query": (dict(first_values(target.partition("?")[2])), answer["first"]),
    }
    if not answer["undecodable"]:  # such a list is refused with 400
        fields["name"] = (ours.name, theirs["Name"])
    return "; ".join(f"{name}: {mine!r}, Go {go!r}" for name, (mine, go) in fields.items() if mine != go)


def test_requests_mean_the_same_here_and_to_the_api_server(resolver: Path) -> None:
    rng = random.Random(4)
    questions = [{"method": rng.choice(METHODS), "target": make_target(rng)} for _ in range(REQUESTS)]
    answers = resolved(resolver, questions)
    assert len(answers) == REQUESTS
    found = {
        f"{question['method']} {question['target']}": wrong
        for question, answer in zip(questions, answers, strict=True)
        if (wrong := difference(question["method"], question["target"], answer))
    }
    assert not found, "\n".join(f"{request}: {wrong}" for request, wrong in list(found.items())[:20])
    read = [answer for answer in answers if not answer["refused"]]
    assert len(read) > REQUESTS / 3
    assert {"list", "watch", "get", "create", "deletecollection"} <= {
        answer["info"]["Verb"] for answer in read
    }
