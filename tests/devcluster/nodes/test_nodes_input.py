"""Wrong wishes for nodes: one line that names what to do, exit code 2, before anything is built or started."""

from __future__ import annotations

import pytest

from devcluster.nodes import requirements
from devcluster.nodes.network import NodeNetwork
from kubeio.errors import InputError
from ringleader.devcluster_command import up


@pytest.mark.parametrize(
    ("nodes", "real", "words"),
    [
        (1, False, "--nodes: 1 needs a real control plane; add --real"),
        (10, True, "--nodes: 10 is no number of nodes; use 1 to 9"),
        (-1, True, "--nodes: -1 is no number of nodes; use 1 to 9"),
    ],
)
def test_number_of_nodes_that_cannot_be(nodes: int, words: str, *, real: bool) -> None:
    with pytest.raises(InputError) as refused:
        up(real=real, nodes=nodes)
    assert str(refused.value) == words


def test_without_root_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(requirements.RequirementsMissing, match=r"^the user is not root \(use sudo -E\)$"):
        requirements.check_machine()


def test_every_missing_command_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(requirements.RequirementsMissing) as missing:
        requirements.check_machine()
    for command in ("ip (package iproute2)", "nft (package nftables)", "unshare (package util-linux)"):
        name, _, package = command.partition(" ")
        assert f"no {name} on PATH {package}" in str(missing.value)


def test_no_two_addresses_of_a_cluster_are_the_same() -> None:
    network = NodeNetwork(3)
    nodes = range(1, 10)
    addresses = {network.address, *(network.node_address(index) for index in nodes)}
    assert len(addresses) == 10
    assert len({network.pods(index) for index in nodes} | {"10.91.0.0/24"}) == 10
