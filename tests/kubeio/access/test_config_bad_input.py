"""Every mistake in a kubeconfig is told with field, value and remedy, and without the secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from kubeio.access.cluster import load_cluster
from kubeio.errors import InputError
from tests.kubeio.access.conftest import Write
from tests.kubeio.access.kubeconfigs import Ca, b64, document


def refusal(path: Path | str, context: str | None = None) -> InputError:
    with pytest.raises(InputError) as caught:
        load_cluster(kubeconfig=str(path), context=context)
    error = caught.value
    assert error.field
    assert error.problem
    assert error.remedy
    return error


def test_a_path_without_a_file(tmp_path: Path) -> None:
    error = refusal(tmp_path / "nowhere")
    assert (error.field, error.value) == ("--kubeconfig", str(tmp_path / "nowhere"))
    assert "does not exist" in error.problem
    assert "is a directory" in refusal(tmp_path).problem
    assert "names no file" in refusal("").problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("just text", "is not a kubeconfig"),
        ("- a\n- b\n", "is not a kubeconfig"),
        ("kind: Deployment\nmetadata: {}\n", "is a Deployment, not a kubeconfig"),
        ("a: b\nclusters: [\n  c: ]]\n", "is not YAML: line 3"),
        ("a:\n\t- b\n", "is not YAML: line 2"),
        ("\x00\x01", "is not YAML"),
    ],
)
def test_file_that_is_no_kubeconfig(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    error = refusal(path)
    assert error.value == str(path)
    assert problem in error.problem


@pytest.mark.parametrize(
    ("changes", "context", "field", "remedy"),
    [
        ({}, "mian", "--context", "did you mean main?"),
        ({"current-context": "elsewhere"}, None, "current-context in ", "known are main"),
        ({"current-context": ""}, None, "current-context", r"--context.*main|main.*--context"),
        ({"contexts": None}, "x", "--context", "there are none"),
    ],
    ids=["unknown", "unknown current one", "no current one", "none at all"],
)
def test_a_context_that_is_not_there(
    write: Write, changes: dict[str, object], context: str | None, field: str, remedy: str
) -> None:
    error = refusal(write(**changes), context=context)
    assert error.field.startswith(field)
    assert re.search(remedy, error.remedy)


@pytest.mark.parametrize(("kind", "near"), [("cluster", "prodd"), ("user", "alicia")])
def test_context_that_names_an_unknown_entry(write: Write, kind: str, near: str) -> None:
    path = write(context={kind: near})
    error = refusal(path)
    assert error.field == f"contexts[main].context.{kind} in {path}"
    assert error.value == near
    assert "did you mean" in error.remedy


def test_context_without_a_cluster(write: Write) -> None:
    assert "is missing" in refusal(write(context={"cluster": None})).problem


@pytest.mark.parametrize(
    "changes",
    [
        {"clusters": {"prod": {}}},
        {"users": ["alice"]},
        {"contexts": [{"context": {}}]},
        {"clusters": [{"name": "prod", "cluster": "https://x"}]},
        {"current-context": ["main"]},
    ],
)
def test_wrong_shape(tmp_path: Path, changes: dict[str, object]) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(document() | changes))
    assert str(path) in refusal(path).field


@pytest.mark.parametrize(
    "server",
    ["", None, "ftp://x", "https://", "https://x:99999", "https://u:p@x", "https://x?y=1", "https://[::1"],
)
def test_server_that_is_no_address(write: Write, server: str | None) -> None:
    path = write(cluster={"server": server})
    error = refusal(path)
    assert error.field == f"clusters[prod].cluster.server in {path}"
    assert "https://HOST:PORT" in error.remedy


CLUSTERS: list[tuple[dict[str, object], str, str]] = [
    ({"certificate-authority-data": "!!!"}, "certificate-authority-data", "is not base64"),
    (
        {"certificate-authority-data": b64(b"no pem")},
        "certificate-authority-data",
        "holds no PEM certificate",
    ),
    ({"certificate-authority-data": b64(b"\xff\xfe")}, "certificate-authority-data", "holds no PEM"),
    ({"certificate-authority-data": 5}, "certificate-authority-data", "is not a string"),
    ({"certificate-authority": "missing.crt"}, "certificate-authority", "cannot be read"),
    ({"insecure-skip-tls-verify": "yes"}, "insecure-skip-tls-verify", "neither true nor false"),
    ({"proxy-url": "socks5://x:1"}, "proxy-url", "not supported"),
    ({"proxy-url": "https://x:1"}, "proxy-url", "not supported"),
    ({"proxy-url": "http://"}, "proxy-url", "names no host"),
    ({"proxy-url": "http://x:nope"}, "proxy-url", "bad port"),
]


@pytest.mark.parametrize(("cluster", "field", "problem"), CLUSTERS)
def test_mistakes_in_a_cluster(write: Write, cluster: dict[str, object], field: str, problem: str) -> None:
    path = write(cluster=cluster)
    error = refusal(path)
    assert error.field == f"clusters[prod].cluster.{field} in {path}"
    assert problem in error.problem


def test_insecure_beside_a_ca(write: Write, ca: Ca) -> None:
    cluster = {"insecure-skip-tls-verify": True, "certificate-authority-data": b64(ca.pem)}
    assert "contradicts certificate-authority-data" in refusal(write(cluster=cluster)).problem


PEM = b64(b"-----BEGIN X-----")
USERS: list[tuple[dict[str, object], str, str]] = [
    ({"token": 12345}, "token", "is not a string"),
    ({"token": "two words"}, "token", "is no token"),
    ({"tokenFile": "missing"}, "tokenFile", "cannot be read"),
    ({"tokenFile": "/dev/null"}, "tokenFile", "is empty"),
    ({"client-certificate-data": "%%%", "client-key-data": PEM}, "client-certificate-data", "is not base64"),
    ({"client-certificate-data": PEM, "client-key-data": "%%%"}, "client-key-data", "is not base64"),
    ({"client-certificate-data": PEM}, "client-key", "is missing"),
    ({"client-key-data": PEM}, "client-certificate", "is missing"),
    ({"client-certificate-data": b64(b"x"), "client-key-data": PEM}, "client-certificate", "is not PEM"),
    ({"client-certificate": "missing", "client-key": "missing"}, "client-certificate", "cannot be read"),
    ({"token": "t", "username": "joe", "password": "p"}, "token", "stands beside username"),
    ({"as-groups": ["a"]}, "as", "is missing beside"),
    ({"as": "j\nane"}, "as", "cannot be sent"),
    ({"as": "jane", "as-groups": "dev"}, "as-groups", "is not a list of strings"),
    ({"exec": "aws"}, "exec", "is not a mapping"),
    ({"auth-provider": {"name": "gcp"}}, "auth-provider.name", "no longer a part of Kubernetes"),
    ({"auth-provider": {"name": "oidc"}}, "auth-provider.config", "lacks id-token"),
]


@pytest.mark.parametrize(("user", "field", "problem"), USERS)
def test_mistakes_in_a_user(write: Write, user: dict[str, object], field: str, problem: str) -> None:
    path = write(user=user)
    error = refusal(path)
    assert error.field == f"users[alice].user.{field} in {path}"
    assert problem in error.problem


V1 = "client.authentication.k8s.io/v1"
EXECS: list[tuple[dict[str, object], str, str, str]] = [
    ({"command": "x"}, "apiVersion", "is not a version", V1),
    (
        {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "x"},
        "apiVersion",
        "is not a version",
        V1,
    ),
    ({"apiVersion": V1}, "command", "is missing", "name the plugin"),
    ({"apiVersion": V1, "command": "no-such-plugin"}, "command", "is not an executable", "install it"),
    (
        {"apiVersion": V1, "command": "no-such-plugin", "installHint": "brew install it"},
        "command",
        "is not an executable",
        "brew install it",
    ),
    ({"apiVersion": V1, "command": "./plugin"}, "command", "is not an executable", "install it"),
    (
        {"apiVersion": V1, "command": "true", "interactiveMode": "Sometimes"},
        "interactiveMode",
        "is unknown",
        "Never",
    ),
    (
        {"apiVersion": V1, "command": "true", "interactiveMode": "Always"},
        "interactiveMode",
        "needs a terminal",
        "terminal",
    ),
    ({"apiVersion": V1, "command": "true", "env": [{"name": "A"}]}, "env", "without name and value", "name"),
    ({"apiVersion": V1, "command": "true", "args": "x"}, "args", "is not a list of strings", "list"),
]


@pytest.mark.parametrize(("section", "field", "problem", "remedy"), EXECS)
def test_mistakes_in_an_exec_plugin(
    write: Write, section: dict[str, object], field: str, problem: str, remedy: str
) -> None:
    path = write(user={"exec": section})
    error = refusal(path)
    assert error.field == f"users[alice].user.exec.{field} in {path}"
    assert problem in error.problem
    assert remedy in error.remedy


def test_no_message_shows_a_secret(write: Write) -> None:
    secret = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0%"
    for user in (
        {"client-certificate-data": PEM, "client-key-data": secret},
        {"token": secret + " " + secret},
        {"exec": {"token": secret, "apiVersion": V1, "command": "true", "env": [{"value": secret}]}},
        {"token": {"secret": secret}},
    ):
        assert secret not in str(refusal(write(user=user)))
    assert "hunter2" not in str(refusal(write(cluster={"proxy-url": "socks5://joe:hunter2@x:1"})))
