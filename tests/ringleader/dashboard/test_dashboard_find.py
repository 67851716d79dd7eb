"""Questions of viewers, answered from a cluster: as `ringleader describe` answers them, and nothing is written."""

from __future__ import annotations

import msgspec

from kubeio.models import HasMeta
from kubeio.program.http_server import Reply
from ringleader.dashboard.command import questions_to
from tests.sharder.io.environment import KEYS, ONLY_SECRETS, RING, SITES, WEBSITES, SharderEnvironment

MAINS = [SITES, *ONLY_SECRETS]


async def answer(env: SharderEnvironment, path: str) -> tuple[int, dict[str, object]]:
    page, *below = path.split("/")
    reply = await questions_to(env.client, timeout_s=10).pages()[f"/{page}"](below)
    assert isinstance(reply, Reply)
    return reply.status, msgspec.json.decode(reply.body)


async def test_an_object_has_its_owner_its_place_and_the_reason(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a")
    site = await env.site("blog", labels={KEYS.shard: "a-00000001"})
    await env.page(site, labels={KEYS.shard: "a-00000001"})
    status, found = await answer(env, f"where/{RING}/websites.example.com/default/blog")
    assert status == 200
    assert (found["ownerMember"], found["desiredMember"], found["isPlaced"]) == ("a", "a", True)
    assert found["key"] == "example.com_default_blog"
    assert found["why"][0] == "the first token at or after the hash is one of a"  # type: ignore[index]
    status, child = await answer(env, f"where/{RING}/configmaps/default/blog")
    assert (status, child["key"]) == (200, found["key"])


async def test_what_cannot_be_found_is_said(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a")
    for path, status, problem in (
        (
            f"{RING}/websites.example.com/default/none",
            404,
            "none does not exist in namespace default",
        ),
        (f"{RING}/secrets/default/token", 404, "does not belong to ring websites"),
        (f"{RING}/websites.example.com/_/blog", 404, "namespace"),
        (f"{RING}/websites.example.com/default/../../secrets", 400, "ask for /where"),
        ("websits/websites.example.com/default/blog", 404, "did you mean websites"),
    ):
        found, document = await answer(env, f"where/{path}")
        assert (path, found, problem in str(document["problem"])) == (path, status, True), document


async def test_nothing_is_written(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a")
    site = await env.site("one")
    _, found = await answer(env, f"where/{RING}/websites.example.com/default/one")
    assert (found["desiredMember"], found["owner"], found["isPlaced"]) == ("a", "", False)
    after = await env.client.get(WEBSITES, "one", namespace="default", type=HasMeta)
    assert after.metadata.resource_version == site.resource_version


async def test_another_number_of_members_is_that_of_a_main_resource(env: SharderEnvironment) -> None:
    await env.ring(resources=MAINS)
    await env.shard("a", works="websites.example.com")
    await env.shard("b", works="secrets")
    await env.shard("c", works="secrets")
    _, first = await answer(env, f"whatif/{RING}/2")
    assert first["joined"] == ["new-1"]
    _, second = await answer(env, f"whatif/{RING}/1/secrets")
    assert second["left"] == ["c"]
    assert (await answer(env, f"whatif/{RING}/1/pages"))[0] == 404
    await env.site("blog", labels={KEYS.shard: "b-00000001"})
    _, found = await answer(env, f"where/{RING}/websites.example.com/default/blog")
    assert (found["desiredMember"], found["main"], found["isPlaced"]) == ("a", "websites.example.com", False)


async def test_a_kind_that_no_member_works_is_the_reason(env: SharderEnvironment) -> None:
    await env.ring(resources=MAINS)
    await env.shard("b", works="secrets")
    await env.site("blog")
    _, found = await answer(env, f"where/{RING}/websites.example.com/default/blog")
    assert "works websites.example.com" in found["why"][0]  # type: ignore[index]
    assert found["desiredMember"] == ""
    assert (await answer(env, f"whatif/{RING}/2/websites.example.com"))[0] == 404
