"""Flags that replace entries of a kubeconfig, as kubectl's do."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeio.access.cluster import in_cluster, load_cluster
from kubeio.access.overrides import Overrides
from kubeio.clock import ManualClock
from kubeio.errors import InputError
from tests.kubeio.access.conftest import Write
from tests.kubeio.access.kubeconfigs import Ca


def test_a_user_is_impersonated_whatever_the_kubeconfig_says(write: Write) -> None:
    flags = Overrides(as_user="jane", as_uid="1", as_groups=("a", "b"))
    cluster = load_cluster(kubeconfig=str(write()), overrides=flags)
    assert cluster.impersonation == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "1"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
    )
    assert cluster.user == "alice as jane"


def test_cluster_user_and_server_are_taken_from_the_flags(write: Write) -> None:
    clusters = [
        {"name": "prod", "cluster": {"server": "https://10.0.0.1:6443"}},
        {"name": "test", "cluster": {"server": "https://10.0.0.2:6443"}},
    ]
    users = [{"name": "alice", "user": {"token": "a"}}, {"name": "bob", "user": {"token": "b"}}]
    path = str(write(clusters=clusters, users=users))
    chosen = load_cluster(kubeconfig=path, overrides=Overrides(cluster="test", user="bob"))
    assert (chosen.server, chosen.user) == ("https://10.0.0.2:6443", "bob")
    elsewhere = load_cluster(kubeconfig=path, overrides=Overrides(server="https://other:1"))
    assert (elsewhere.server, elsewhere.user) == ("https://other:1", "alice")


def test_a_server_alone_needs_no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    cluster = load_cluster(overrides=Overrides(server="http://127.0.0.1:8080"))
    assert (cluster.server, cluster.user, cluster.namespace) == (
        "http://127.0.0.1:8080",
        "anonymous",
        "default",
    )


def test_a_pods_account_can_impersonate_too(tmp_path: Path, ca: Ca) -> None:
    (tmp_path / "ca.crt").write_bytes(ca.pem)
    (tmp_path / "token").write_text("t")
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    cluster = in_cluster(environ, tmp_path, clock=ManualClock(), overrides=Overrides(as_user="jane"))
    assert cluster.impersonation == (("Impersonate-User", "jane"),)
    assert cluster.user == "service account of the pod as jane"


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        (Overrides(cluster="nope"), "--cluster"),
        (Overrides(user="nope"), "--user"),
        (Overrides(server="ftp://x"), "--server"),
        (Overrides(as_groups=("a",)), "--as"),
        (Overrides(as_uid="1"), "--as"),
    ],
)
def test_a_flag_that_cannot_be_used_is_named(write: Write, flags: Overrides, field: str) -> None:
    with pytest.raises(InputError) as caught:
        load_cluster(kubeconfig=str(write()), overrides=flags)
    assert caught.value.field == field
