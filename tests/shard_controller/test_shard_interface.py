"""What users see: public names and signatures, declarations, the command line, the examples."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import shard_controller as sc
from kubeio.errors import InputError
from shard_controller.process.target import load_controller
from tests.shard_controller.bench import Bench

ROOT = Path(__file__).parents[2]
CORE_CONFIGMAPS = {"group": "", "resource": "configmaps"}
SNAPSHOT = Path(__file__).parent / "public_signatures.txt"


def public_signatures() -> str:
    """One line per public name, and per public member of a class."""
    lines: list[str] = []
    for name in sorted(sc.__all__):
        value = getattr(sc, name)
        if not inspect.isclass(value):
            shown = str(inspect.signature(value)) if inspect.isfunction(value) else f" = {value}"
            lines.append(f"{name}{shown}")
            continue
        lines.append(f"class {name}{_signature(value)}")
        for member, what in sorted(vars(value).items()):
            if member.startswith("_"):
                continue
            if inspect.isfunction(what):
                lines.append(f"  {name}.{member}{inspect.signature(what)}")
            elif isinstance(what, property) and what.fget is not None:
                lines.append(f"  {name}.{member} -> {inspect.signature(what.fget).return_annotation}")
    return "\n".join(lines) + "\n"


def _signature(value: type) -> str:
    try:
        return str(inspect.signature(value))
    except ValueError:
        return "(...)"


def test_public_signatures_change_only_on_purpose() -> None:
    """If this change is meant, write the new text to the file and tell users in the changelog."""
    assert public_signatures() == SNAPSHOT.read_text()


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(sc.__file__).parent / "py.typed").exists()


# -- declarations


class Site(msgspec.Struct):
    html: str


@dataclasses.dataclass
class DataSite:
    html: str


@pytest.mark.parametrize("model", [Site, DataSite])
def test_models_are_structs_or_dataclasses(model: Any) -> None:
    assert sc.Resource("sites/v1", model).decode(b'{"html": "hi", "more": 1}').html == "hi"


def test_a_model_may_be_a_plain_dict() -> None:
    assert sc.Resource("sites/v1", dict).decode(b'{"html": "hi"}') == {"html": "hi"}


def test_an_object_that_does_not_fit_says_which_field() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.html"):
        sc.Resource("sites/v1", Site).decode(b'{"html": 5}')


def test_a_reconciler_with_a_wrong_signature_is_refused_with_the_right_one() -> None:
    sites: sc.Controller[Site] = sc.Controller(sc.Resource("sites/v1", Site))
    wrong: Any = lambda ctx, more: sc.Done()  # noqa: E731 - mypy would see through a def
    with pytest.raises(InputError, match=r"exactly one argument.*async def f\(ctx: sc.Context\[Model\]\)"):
        sites.reconcile(wrong)


async def _takes_a_blocking_context(ctx: sc.SyncContext[Site]) -> sc.Result:
    return sc.Done()


def _takes_an_async_context(ctx: sc.Context[Site]) -> sc.Result:
    return sc.Done()


async def _takes_another_model(ctx: sc.Context[DataSite]) -> sc.Result:
    return sc.Done()


async def _takes_the_object(site: Site) -> sc.Result:
    return sc.Done()


async def _answers_nothing(ctx: sc.Context[Site]) -> None: ...


def _yields(ctx: sc.SyncContext[Site]) -> Any:
    yield sc.Done()


@pytest.mark.parametrize(
    ("wrong", "problem", "right"),
    [
        (
            _takes_a_blocking_context,
            "is async and takes a SyncContext",
            "async def _takes_a_blocking_context(ctx: sc.Context[Site]) -> sc.Result",
        ),
        (
            _takes_an_async_context,
            "is not async, so it runs in a thread and takes a Context",
            "def _takes_an_async_context(ctx: sc.SyncContext[Site]) -> sc.Result",
        ),
        (
            _takes_another_model,
            "takes a Context of DataSite, Resource('sites/v1', Site) has another",
            "async def _takes_another_model(ctx: sc.Context[Site]) -> sc.Result",
        ),
        (
            _takes_the_object,
            "takes a Site",
            "async def _takes_the_object(site: sc.Context[Site]) -> sc.Result",
        ),
        (
            _answers_nothing,
            "returns None",
            "_answers_nothing(ctx: sc.Context[Site]) -> sc.Result`, and return sc.Done()",
        ),
        (_yields, "yields", "async def f(ctx: sc.Context[Model]) -> sc.Result"),
        ("publish", "is not a function", "async def f(ctx: sc.Context[Model]) -> sc.Result"),
    ],
)
def test_a_reconciler_with_wrong_annotations_is_refused_with_the_right_ones(
    wrong: Any, problem: str, right: str
) -> None:
    sites: sc.Controller[Site] = sc.Controller(sc.Resource("sites/v1", Site))
    with pytest.raises(InputError) as refused:
        sites.reconcile(wrong)
    assert problem in str(refused.value)
    assert right in str(refused.value)


def _bare(ctx: sc.SyncContext) -> sc.Result:  # type: ignore[type-arg] # as people write it
    return sc.Done()


async def _of_anything(ctx: sc.Context[Any]) -> sc.Result:
    return sc.Done()


async def _unseen(ctx: NotThere) -> sc.Result:  # type: ignore[name-defined] # noqa: F821 - seen by type checkers only
    return sc.Done()


class _Callable:
    async def __call__(self, ctx: sc.Context[Site]) -> sc.Result:
        return sc.Done()


@pytest.mark.parametrize("right", [_bare, _of_anything, _unseen, _Callable(), lambda ctx: sc.Done()])
def test_a_reconciler_whose_annotations_say_less_is_taken(right: Any) -> None:
    sites: sc.Controller[Site] = sc.Controller(sc.Resource("sites/v1", Site))
    assert sites.reconcile(right) is right


def test_a_model_that_is_a_dict_may_be_annotated_with_what_is_in_it() -> None:
    sites: sc.Controller[dict[str, Any]] = sc.Controller(sc.Resource("sites/v1", dict))

    @sites.reconcile
    async def publish(ctx: sc.Context[dict[str, Any]]) -> sc.Result:
        return sc.Done()

    assert sites.reconciler is publish


def test_a_finalizer_may_be_blocking_and_is_checked_too() -> None:
    sites: sc.Controller[Site] = sc.Controller(sc.Resource("sites/v1", Site))

    @sites.finalizer("example.com/disk")
    def remove(ctx: sc.SyncContext[Site]) -> None: ...

    assert sites.finalizers == {"example.com/disk": remove}
    wrong: Any = _takes_an_async_context
    with pytest.raises(
        InputError, match=r"write `def _takes_an_async_context\(ctx: sc.SyncContext\[Site\]\) -> None`"
    ):
        sites.finalizer("example.com/cdn")(wrong)


def test_a_second_reconciler_is_refused() -> None:
    sites: sc.Controller[Site] = sc.Controller(sc.Resource("sites/v1", Site))

    @sites.reconcile
    async def first(ctx: sc.Context[Site]) -> sc.Result:
        return sc.Done()

    with pytest.raises(InputError, match="second reconciler of sites"):
        sites.reconcile(first)


@pytest.mark.parametrize("name", ["cdn", "example.com/", "Example.com/x", "example.com/a b"])
def test_a_finalizer_without_a_domain_is_refused(name: str) -> None:
    sites: sc.Controller[Site] = sc.Controller(sc.Resource("sites/v1", Site))
    with pytest.raises(InputError, match="DOMAIN/NAME"):
        sites.finalizer(name)


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_a_requeue_needs_a_time(seconds: float) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        sc.RequeueAfter(seconds=seconds)


@pytest.mark.parametrize("options", [{"workers": 0}, {"timeout_s": 0}])
def test_a_controller_needs_workers_and_time(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="is too small"):
        sc.Controller(sc.Resource("sites/v1", Site), **options)


# -- the command line's target


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("{}/namesakes.py:sites", r"name: 'sites' is the name of two controllers, also of again; .*name="),
        ("controller.py", "is not FILE.py:NAME or MODULE:NAME"),
        ("controller.py:not-a-name", "is not FILE.py:NAME"),
        ("missing.py:sites", "does not exist"),
        ("no.such.module:sites", "cannot be imported"),
        ("{}/good.py:site", "did you mean sites?"),
        ("{}/good.py:other", "is not a Controller"),
        ("{}/good.py:empty", "has no reconciler"),
        ("{}/broken.py:sites", r"cannot be imported \(ZeroDivisionError"),
        ("{}/syntax.py:sites", r"cannot be imported \(SyntaxError"),
    ],
)
def test_a_target_that_names_no_controller_says_why(tmp_path: Path, target: str, problem: str) -> None:
    good = "import shard_controller as sc\nother = 1\nempty = sc.Controller(sc.Resource('x/v1', dict))\n"
    good += "sites = sc.Controller(sc.Resource('sites/v1', dict))\n@sites.reconcile\ndef f(ctx): return sc.Done()\n"
    (tmp_path / "good.py").write_text(good)
    (tmp_path / "namesakes.py").write_text(f"{good}again = sc.Controller(sites.resource)\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "syntax.py").write_text("def (\n")
    with pytest.raises(InputError, match=problem):
        load_controller(target.format(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        (["run"], "Missing argument"),
        (["run", "x.py:y", "--no-such-flag"], "No such option"),
        (["dance"], "No such command"),
        (["run", "x.py:y"], "error: CONTROLLER: 'x.py:y' names a file that does not exist"),
        (
            ["run", "examples/website/controller.py:websites", "--lease-duration", "0"],
            "error: --lease-duration",
        ),
        (
            ["run", "examples/website/controller.py:websites", "--kubeconfig", "/nope"],
            "error: --kubeconfig: '/nope'",
        ),
        (
            ["run", "examples/website/controller.py:websites", "--log-level", "loud"],
            "error: --log-level: 'loud'",
        ),
        (
            ["run", "examples/website/controller.py:websites", "--health-probe-bind-address", "here"],
            "error: --health-probe-bind-address: 'here'",
        ),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(arguments: list[str], pattern: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "shard_controller", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert ran.returncode == 2
    assert pattern in ran.stderr
    assert "Traceback" not in ran.stderr


# -- on a cluster


@pytest.mark.parametrize(
    ("flags", "pattern"),
    [
        (("--ring", "nope"), "error: --ring: 'nope' does not exist"),
        (("--member", "Not_A_Name"), "error: --member: 'Not_A_Name'"),
        (("--lease-duration", "61"), "is longer than the ring's maxLeaseDurationSeconds 60"),
    ],
)
async def test_what_does_not_fit_the_ring_is_one_message(
    bench: Bench, flags: tuple[str, ...], pattern: str
) -> None:
    shard = await bench.start("web-0", flags=flags, wait=False)
    assert await shard.ended() == 2
    assert pattern in shard.log.read_text()
    assert "Traceback" not in shard.log.read_text()


async def test_a_controller_that_the_ring_does_not_distribute_is_refused(
    bench: Bench, tmp_path: Path
) -> None:
    program = tmp_path / "other.py"
    program.write_text(
        "import shard_controller as sc\n"
        "secrets = sc.Controller(sc.Resource('secrets/v1', dict))\n"
        "@secrets.reconcile\nasync def f(ctx): return sc.Done()\n"
    )
    shard = await bench.start("web-0", program=f"{program}:secrets", wait=False)
    assert await shard.ended() == 2
    assert "does not distribute secrets (only websites.example.com)" in shard.log.read_text()


MODES = pytest.mark.parametrize("mode", ["sharded", "leader-elected", "single"])
"""The same file, unchanged."""


@MODES
async def test_the_website_example_publishes_its_page(bench: Bench, mode: str) -> None:
    shard = await bench.start(
        "web-0",
        program="examples/website/controller.py:websites",
        mode=mode,
        env={"WEBSITE_WAIT_MS": "0-20"},
    )
    await bench.site("blog", "<h1>Hello</h1>", owner=shard if mode == "sharded" else "")
    await bench.until(lambda: bench.status("blog", "configMap"), equals="blog")
    status = await bench.status("blog")
    assert status["observedGeneration"] == 1
    assert [(c["type"], c["status"], c["observedGeneration"]) for c in status["conditions"]] == [
        ("Ready", "True", 1)
    ]
    page = (await bench.get("configmaps", "blog"))["data"]["index.html"]
    assert page == "<!doctype html><title>blog</title><body><h1>Hello</h1></body>"
    assert await shard.terminate() == 0


@MODES
async def test_the_checksum_example_works_on_core_resources(bench: Bench, mode: str) -> None:
    await bench.distribute({"group": "", "resource": "secrets", "controlledResources": [CORE_CONFIGMAPS]})
    shard = await bench.start("sums-0", program="examples/checksum/controller.py:checksums", mode=mode)
    labels = {bench.keys.shard: shard.name} if mode == "sharded" else {}
    await bench.secret("database", {"password": "Y29ycmVjdA=="}, labels=labels)
    await bench.until(lambda: bench.get("configmaps", "database-checksum"))
    sums = (await bench.get("configmaps", "database-checksum"))["data"]
    assert sums == {"password": "15a596e3c98c407e043751ff3b21ff0358a1bdfdf3fe948b1523893a8e5de2e8"}
    assert shard.process.returncode is None


@pytest.mark.parametrize("example", ["website", "checksum"])
def test_an_example_is_short_and_complete(example: str) -> None:
    folder = ROOT / "examples" / example
    assert len((folder / "controller.py").read_text().splitlines()) < 150
    assert {"README.md", "ring.yaml"} <= {path.name for path in folder.iterdir()}


async def test_metrics_and_probes_are_served_under_known_names(bench: Bench) -> None:
    shard = await bench.start("web-0")
    await bench.site("blog", "publish hello\nready", owner=shard)
    await bench.until(lambda: bench.page("blog"))
    metrics = await shard.metrics()
    assert 'controller_runtime_reconcile_total{controller="sites",result="success"}' in metrics
    assert 'workqueue_depth{controller="sites",name="sites",priority="0"}' in metrics
    for name, value in (
        ('controller_runtime_max_concurrent_reconciles{controller="sites"}', 4),
        ('ringleader_shard_objects{controller="sites",resource="websites.example.com"}', 1),
        ('ringleader_shard_handoffs_total{controller="sites",kind="directed"}', 0),
    ):
        assert metrics[name] == value
    for path in ("/readyz", "/healthz"):
        assert (await shard.page(path))[0] == 200
