"""One resource of a ring fails (5xx, a conversion webhook): the others are assigned, taken over and shared as ever."""

from __future__ import annotations

from devcluster.faults import Fault
from kubeio.resource import ApiResource
from tests.sharder.io.ground import CONFIGMAPS, KEYS, WEBSITES, Ground, wait_until
from tests.sharder.io.owners import owners_that_pass_on
from tests.sharder.io.test_sharder_moving import belonging_to
from tests.sharder.io.test_sharder_permissions import make

SECRETS = ApiResource("", "v1", "secrets", "Secret")
RESOURCES = [
    {"group": "", "resource": "secrets"},
    {
        "group": "example.com",
        "resource": "websites",
        "controlledResources": [{"group": "", "resource": "configmaps"}],
    },
]
WORDS = "conversion webhook for v1, Kind=Secret failed: connection refused"


async def test_a_resource_whose_patches_fail_is_tried_once_in_a_while_and_the_others_go_on(
    ground: Ground,
) -> None:
    await ground.plane.faults.add(
        Fault(what="error", code=500, user="sharder-1", verb="patch", resource="secrets", message=WORDS)
    )
    await ground.ring(resources=RESOURCES)
    await ground.shard("a")
    for number in range(100):
        await make(ground, SECRETS, f"secret-{number}")
    async with ground.sharder():

        async def told() -> bool:
            ready = await ground.condition("Ready")
            message = str(ready["message"]) if ready.get("reason") == "ResourceFails" else ""
            return "patch secrets in namespace default: " in message and WORDS in message

        await wait_until(told, within_s=25)
        (before,) = [fault.hits for fault in await ground.plane.faults.active()]
        await make(ground, WEBSITES, "one")

        async def is_owned() -> bool:
            return bool((await ground.owners()).get("one"))

        await wait_until(is_owned)
        (after,) = [fault.hits for fault in await ground.plane.faults.active()]
        assert after - before <= 3, "one in five seconds"
        await ground.plane.faults.clear()

        async def healed() -> bool:
            ready = await ground.condition("Ready")
            return ready.get("status") == "True" and all((await ground.owners(SECRETS)).values())

        await wait_until(healed, within_s=25)


async def test_a_resource_that_cannot_be_listed_stops_neither_take_over_nor_rebalancing(
    ground: Ground,
) -> None:
    await ground.plane.faults.add(
        Fault(what="error", code=500, user="sharder-1", verb="list", resource="secrets", message=WORDS)
    )
    await ground.ring(resources=RESOURCES)
    for member in ("a", "b", "c"):
        await ground.shard(member)
    misplaced = belonging_to("b", ["a", "b", "c"], 1)[0]
    await make(ground, WEBSITES, misplaced, owner="a-00000001")
    await make(ground, CONFIGMAPS, "page")
    orphan = belonging_to("c", ["a", "b", "c"], 1)[0]
    await make(ground, WEBSITES, orphan)
    async with owners_that_pass_on(ground), ground.sharder():

        async def owners_are(expected: dict[str, str]) -> bool:
            owners = await ground.owners()
            return all(owners[name] == owner for name, owner in expected.items())

        await wait_until(lambda: owners_are({misplaced: "b-00000001", orphan: "c-00000001"}), within_s=25)
        await ground.shards[2].fall_silent()

        async def taken_over() -> bool:
            return (await ground.owners())[orphan] in ("a-00000001", "b-00000001")

        await wait_until(taken_over)

        async def told() -> bool:
            ready = await ground.condition("Ready")
            return ready.get("reason") == "ResourceFails" and WORDS in str(ready["message"])

        await wait_until(told, within_s=25)
        await ground.plane.faults.clear()
        await make(ground, SECRETS, "late")

        async def healed() -> bool:
            ready = await ground.condition("Ready")
            return ready.get("status") == "True" and KEYS.shard in (await ground.labels(SECRETS))["late"]

        await wait_until(healed, within_s=25)
