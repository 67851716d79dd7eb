"""Objects nested 9,900 deep, as an API server accepts them, in every place where a ring reads: they stop no other.

Two replicas under a sharder. The pills: a Website, a controlled Sheet and a watched Box, deep in lists and in maps.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
import yaml

from devcluster.embedded import EmbeddedPlane
from devcluster.plane import ControlPlane
from devcluster.real import BinariesMissing
from kubeio.access.cluster import load_cluster
from kubeio.models import HasMeta
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from ringleader.testing.commands import WEBSITES, FleetSpec
from ringleader.testing.fleet import Fleet, open_fleet
from ringleader.testing.objects import Ref
from ringleader.testing.plugin import plane_context
from ringleader.testing.single_task import single_task

CONTROLLER = Path(__file__).with_name("controllers") / "reading.py"
TEMPLATE = Path(__file__).parents[2] / "examples" / "website" / "crd.yaml"
SHEETS = ApiResource("example.com", "v1", "sheets", "Sheet")
BOXES = ApiResource("example.com", "v1", "boxes", "Box")
HEALTHY = 8
DEPTH = 9_900
LIST = "[" * DEPTH + "]" * DEPTH
MAP = '{"a":' * DEPTH + "1" + "}" * DEPTH


def _is_decoded() -> bool:
    try:
        msgspec.json.decode(LIST)
    except RecursionError:
        return False
    return True


unreadable = pytest.mark.skipif(_is_decoded(), reason="this Python decodes whatever an API server accepts")
"""Python 3.11 stops at its recursion limit; 3.13 reads ten thousand levels, which is the API server's own limit."""

pytestmark = [pytest.mark.fleet, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module", autouse=True)
def independent_client_reads_deep_objects() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(2 * DEPTH)
    yield
    sys.setrecursionlimit(before)


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=["embedded", pytest.param("real", marks=[pytest.mark.real, pytest.mark.alone])],
)
async def plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    folder = tmp_path_factory.mktemp(f"pills-{request.param}")
    try:
        async with single_task(plane_context(folder, is_real=request.param == "real")) as plane:
            yield plane
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    folder = tmp_path_factory.mktemp("reading")
    spec = FleetSpec(
        controller=f"{CONTROLLER}:websites",
        controlled=(SHEETS,),
        definitions=tuple(definition(folder, kind) for kind in (WEBSITES, SHEETS, BOXES)),
        lease_s=6,  # a server that reads such an object is slow for everybody
        sharders=1,
    )
    async with single_task(open_fleet(plane, folder / "fleet", spec=spec)) as fleet:
        await fleet.start(replicas=2)
        await fleet.objects.create_many(HEALTHY)
        await fleet.wait_converged()
        yield fleet


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(plane: ControlPlane) -> AsyncIterator[Client]:
    account = await plane.kubeconfig_for("tenant", groups=("system:masters",))
    async with Client(load_cluster(kubeconfig=str(account))) as client:
        yield client


def definition(folder: Path, kind: ApiResource) -> Path:
    """The example's definition for *kind*, with a spec in which anything may stand."""
    text = TEMPLATE.read_text().replace("Website", kind.kind).replace("website", kind.kind.lower())
    crd = yaml.safe_load(text.replace(f"{kind.kind.lower()}s", kind.plural).replace("[site]", "[]"))
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["x-kubernetes-preserve-unknown-fields"] = True
    path = folder / f"{kind.plural}.yaml"
    path.write_text(yaml.safe_dump(crd))
    return path


async def create(client: Client, kind: ApiResource, name: str, values: str) -> None:
    body = (
        f'{{"apiVersion":"{kind.api_version}","kind":"{kind.kind}","metadata":{{"name":"{name}"}},'
        f'"spec":{{"html":"good","values":{values}}}}}'
    )
    await client.create(kind, body.encode(), namespace="sites", type=bytes)


async def others_are_fresh(fleet: Fleet, refs: Sequence[Ref] | None = None) -> None:
    """Every healthy object, or *refs* of them, is changed, and reconciled soon; no process ends."""
    refs = fleet.objects.refs if refs is None else refs
    await fleet.objects.update_all(refs)
    uids = {ref.uid for ref in refs}
    wanted = {uid: version for uid, version in (await fleet.objects.generations()).items() if uid in uids}

    async def are_fresh() -> bool:
        return not await fleet.objects.behind(wanted)

    await fleet.wait_for(are_fresh, "the other objects to be reconciled", within_s=30)
    assert [place.exits for place in (*fleet.members.values(), *fleet.sharders.values())] == [[], [], []]


def logs(fleet: Fleet) -> str:
    return "\n".join(replica.log.read_text() for replica in fleet.members.values())


def names(fleet: Fleet, told: str, name: str) -> bool:
    return any(told in line and name in line for line in logs(fleet).splitlines())


@unreadable
@pytest.mark.parametrize(("shape", "values"), [("list", LIST), ("map", MAP)])
async def test_a_deep_object_is_named_and_stops_no_other(
    fleet: Fleet, client: Client, shape: str, values: str
) -> None:
    await create(client, WEBSITES, f"pill-{shape}", values)
    await create(client, BOXES, f"box-{shape}", values)
    await fleet.wait_for(
        lambda: names(fleet, "object does not fit the model", f"pill-{shape}"), "the pill to be named"
    )
    await others_are_fresh(fleet)
    await fleet.wait_for(  # left out of ctx.list
        lambda: names(fleet, "object does not fit the model", f"box-{shape}"), "the box to be named"
    )


@pytest.mark.parametrize(("index", "values"), [(0, LIST), (1, MAP)])
async def test_a_deep_controlled_object_stops_no_other(
    fleet: Fleet, client: Client, index: int, values: str
) -> None:
    await client.request(
        "PATCH",
        SHEETS.path(namespace="sites", name=fleet.objects.refs[index].name),
        body=f'[{{"op":"add","path":"/spec/values","value":{values}}}]'.encode(),
        content_type="application/json-patch+json",  # a merge patch so deep costs kube-apiserver 12 s
        timeout_s=90,
    )
    await others_are_fresh(fleet, fleet.objects.refs[2:])


async def test_deep_objects_are_handed_over_and_listed_at_a_start(fleet: Fleet, client: Client) -> None:
    await fleet.restart("sharder-1")
    for name in list(fleet.members):
        await fleet.restart(name)
    joined = await fleet.add_member()
    await fleet.wait_up()
    for name in list(fleet.members):
        if name != joined:
            await fleet.leave(name)

    async def all_are_with_the_last() -> bool:
        life = fleet.life(joined)
        labels = await fleet.objects.labels()
        return life is not None and all(found.get(fleet.spec.keys.shard) == life for found in labels.values())

    await fleet.wait_for(all_are_with_the_last, "every object to be with the last replica", within_s=60)
    assert all(not exits.code for place in fleet.members.values() for exits in place.exits)


async def unfit(fleet: Fleet) -> set[str]:
    """The objects that `ringleader check` names as unfit; a process of its own, with Python's own recursion limit."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "ringleader", "check", "--recheck-after", "1s", "-o", "json"),
        *("--kubeconfig", str(fleet.plane.kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    findings = msgspec.json.decode(out)["findings"]
    return {each["object"] for each in findings if (each["check"], each["level"]) == ("unfit", "error")}


@unreadable
async def test_the_check_names_deep_objects(fleet: Fleet) -> None:
    async def are_named() -> bool:
        return await unfit(fleet) == {"website/pill-list -n sites", "website/pill-map -n sites"}

    await fleet.wait_for(are_named, "both pills to be named by the check", within_s=30)


@unreadable
async def test_an_object_that_is_no_longer_deep_is_reconciled(fleet: Fleet, client: Client) -> None:
    for shape in ("list", "map"):
        await client.request(
            "PATCH",
            WEBSITES.path(namespace="sites", name=f"pill-{shape}"),
            body=b'[{"op":"remove","path":"/spec/values"}]',
            content_type="application/json-patch+json",
        )

    async def has_sheets() -> bool:
        page = await client.list_page(SHEETS, namespace="sites")
        return {"pill-list", "pill-map"} <= {found.meta.name for found in page.objects}

    await fleet.wait_for(has_sheets, "the pills to be reconciled", within_s=30)
    assert (
        await client.get(WEBSITES, "pill-map", namespace="sites", type=HasMeta)
    ).metadata.name == "pill-map"
    if not isinstance(fleet.plane, EmbeddedPlane):  # which does not note in managedFields that it was changed

        async def are_well() -> bool:
            return await unfit(fleet) == set()

        await fleet.wait_for(are_well, "the check to find nothing unfit", within_s=30)
