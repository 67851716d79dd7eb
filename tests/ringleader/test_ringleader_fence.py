"""`ringleader fence` prints the policies of one ring, and refuses what they cannot be made for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from kubeio.models import GroupResource
from kubeio.protocol import RingEntry, RingKeys
from ringleader.__main__ import main
from ringleader.fence.documents import Identity, fence_documents, resource_rules
from tests.sharder.io.environment import SharderEnvironment
from tests.warm_python import warm_python

ENTRIES = [
    RingEntry("websites", "example.com", [GroupResource("", "secrets"), GroupResource("", "configmaps")]),
    RingEntry("shops", "example.com", [GroupResource("", "configmaps")]),
]
RING = """
apiVersion: ringleader.dev/v1alpha1
kind: ControllerRing
metadata: {name: websites}
spec: {leaseNamespace: team, resources: [{group: example.com, resource: websites}]}
"""


@pytest.fixture
def ring_file(tmp_path: Path) -> str:
    path = tmp_path / "ring.yaml"
    path.write_text(RING)
    return str(path)


def test_rules_name_every_kind_of_the_ring_once_with_its_subresources() -> None:
    operations = {"apiVersions": ["*"], "operations": ["CREATE", "UPDATE", "DELETE"]}
    assert resource_rules(ENTRIES) == [
        {
            "apiGroups": [""],
            **operations,
            "resources": ["configmaps", "configmaps/*", "secrets", "secrets/*"],
        },
        {
            "apiGroups": ["example.com"],
            **operations,
            "resources": ["shops", "shops/*", "websites", "websites/*"],
        },
    ]


@pytest.mark.parametrize("identity", list(Identity))
def test_every_gap_of_the_text_is_filled(identity: Identity) -> None:
    accounts = ["system:serviceaccount:a:b"] if identity is Identity.POD else []
    text = fence_documents(RingKeys("sites", "example.org"), ENTRIES, identity=identity, accounts=accounts)
    docs = list(yaml.safe_load_all(text))
    assert [doc["kind"].removeprefix("ValidatingAdmissionPolicy") for doc in docs] == ["", "Binding"] * 2
    assert {doc["metadata"]["name"] for doc in docs} == {
        "ringleader-fence-sites",
        "ringleader-unlabelled-sites",
    }
    assert "$(" not in yaml.safe_dump_all(docs)
    for policy, operator in ((docs[0], "Exists"), (docs[2], "DoesNotExist")):
        assert policy["spec"]["failurePolicy"] == "Fail"
        (selected,) = policy["spec"]["matchConstraints"]["objectSelector"]["matchExpressions"]
        assert selected == {"key": "shard.example.org/sites", "operator": operator}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--identity", "pod"], "--account is needed with --identity pod"),
        (["--account", "a/b"], "--account: 'a/b' is for --identity pod; leave it out"),
        (
            ["--identity", "pod", "--account", "web"],
            "--account: 'web' is no ServiceAccount; write NAMESPACE/NAME",
        ),
        (["--identity", "name"], "--identity"),
    ],
)
def test_input_that_cannot_be_used_is_named_with_its_remedy(
    ring_file: str, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["fence", "websites", "--ring-file", ring_file, *words]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_the_file_must_hold_the_ring(ring_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fence", "shops", "--ring-file", ring_file]) == 2
    assert "is not the ring in" in capsys.readouterr().err


async def test_a_server_without_policies_is_refused_in_one_sentence(env: SharderEnvironment) -> None:
    """The control plane in memory has none, as servers before Kubernetes 1.30."""
    await env.ring()
    process = await asyncio.create_subprocess_exec(
        *(warm_python(), "-m", "ringleader", "fence", "websites", "--kubeconfig", str(env.plane.kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, out) == (2, b"")
    assert (
        "has no ValidatingAdmissionPolicy, of which the fence is made; use Kubernetes 1.30 or newer"
        in err.decode()
    )
