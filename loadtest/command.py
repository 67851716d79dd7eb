"""`ringleader loadtest`: its words and flags. What they mean is `loadtest.session`'s.

`ringleader loadtest SCENARIO` is short for `ringleader loadtest run SCENARIO`. Heavy modules are imported when a
command runs, so that help stays quick.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer
from typer.core import TyperGroup

from kubeio.errors import InputError
from kubeio.program.durations import parse_duration
from ringleader.options import Context, Kubeconfig, Namespace, Output
from ringleader.output import Form, Table, print_document, print_line, print_table

if TYPE_CHECKING:
    from typer._click import Context as ClickContext

_RUN: Final = re.compile(r"\A[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?\Z")
_OWN_NAMESPACE: Final = "load"
_EXAMPLE_WAIT_MS: Final = 300


class _RunByDefault(TyperGroup):
    """A group whose first word may be left out if it is `run`."""

    def parse_args(self, ctx: ClickContext, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="loadtest",
    cls=_RunByDefault,
    help="Load a fleet and judge what was measured. `ringleader loadtest steady` needs no cluster.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

TemplateFile = Annotated[
    Path | None,
    typer.Option(
        "--template", metavar="FILE", help="Manifest of the objects. Default: the example's Website."
    ),
]
Objects = Annotated[
    int, typer.Option("--objects", min=1, max=1_000_000, help="Objects that exist before the load.")
]
Plane = Annotated[
    Literal["embedded", "real"], typer.Option("--plane", help="Control plane of the own fleet.")
]
Workers = Annotated[
    int, typer.Option("--workers", min=1, help="Reconciles at a time in each replica of the own fleet.")
]
ControllerFile = Annotated[
    str, typer.Option("--controller", metavar="FILE.py:NAME", help="Controller of the own fleet.")
]
SloFile = Annotated[
    Path | None, typer.Option("--slo", metavar="FILE", help="Service level. Default: see docs.")
]
RingName = Annotated[str, typer.Option("--ring", help="Ring that distributes the objects.")]
ProbesPort = Annotated[
    int, typer.Option("--port", min=1, max=65535, help="Probes port of the cluster's replicas.")
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the report.")]


def _refuse_on_cluster(flags: Mapping[str, object]) -> None:
    """Raises InputError for a flag of the own fleet that was given beside a cluster."""
    for flag, value in flags.items():
        if value:
            raise InputError(
                flag, value, "is for an own fleet", "leave this out; the cluster has what is deployed there"
            )


@app.command()
def run(
    *,
    scenario: Annotated[
        list[str],
        typer.Argument(metavar="SCENARIO...", help="Built-in scenarios, or YAML files; one after the other."),
    ],
    objects: Objects = 500,
    rate: Annotated[
        float, typer.Option("--rate", min=0.1, help="Operations per second, of all users together.")
    ] = 40.0,
    duration: Annotated[
        str, typer.Option("--duration", metavar="TIME", help="Length of the load: 60s, 4h.")
    ] = "60s",
    plane: Plane = "embedded",
    replicas: Annotated[
        int, typer.Option("--replicas", min=1, max=64, help="Replicas of the own fleet.")
    ] = 3,
    workers: Workers = 8,
    controller: ControllerFile = "",
    template: TemplateFile = None,
    slo: SloFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    ring: RingName = "websites",
    port: ProbesPort = 8081,
    out: Out = Path("build/loadtest"),
    output: Output = None,
    processes: Annotated[
        int, typer.Option("--processes", min=0, help="Locust processes on this machine; 0: one for all.")
    ] = 0,
    expect_workers: Annotated[
        int, typer.Option("--expect-workers", min=0, help="Locust workers that join from other machines.")
    ] = 0,
    web_port: Annotated[
        int, typer.Option("--web-port", min=0, max=65535, help="Port of locust's web page; 0: none.")
    ] = 0,
) -> int:
    """Run scenarios against an own fleet, or against the cluster that --kubeconfig or --context names.

    All of them run on the same objects. Several have a report each, in DIR/SCENARIO.

    Exit codes: 0 the service level was held, 1 it was not, 2 bad input.
    """
    from kubeio.program import runtime
    from loadtest.inputs.scenario import read_schedules
    from loadtest.inputs.slo import read_slo
    from loadtest.inputs.template import read_template
    from loadtest.load import LocustOptions
    from loadtest.session import Session, run_session
    from loadtest.targets.cluster import ClusterOptions
    from loadtest.targets.own import OwnOptions

    schedules = read_schedules(scenario, duration_s=parse_duration("--duration", duration), rate=rate)
    manifest, limits = read_template(template), read_slo(slo)
    if len(schedules) > 1 and expect_workers:
        raise InputError(
            "--expect-workers",
            expect_workers,
            "stands beside several scenarios: locust's workers end with the first of them",
            "run one scenario after the other, each with new workers",
        )
    if processes and expect_workers:
        raise InputError(
            "--processes",
            processes,
            "stands beside --expect-workers",
            "use one of the two; locust's workers do the rest",
        )
    if kubeconfig is None and context is None:
        own = OwnOptions(
            real=plane == "real",
            replicas=replicas,
            workers=workers,
            namespace=namespace or _OWN_NAMESPACE,
            ring=ring,
            controller=controller,
            group=manifest.group,
        )
        own.refuse_template(manifest)
        target: OwnOptions | ClusterOptions = own
    else:
        _refuse_on_cluster({"--controller": controller})
        target = ClusterOptions(
            kubeconfig=kubeconfig or "",
            context=context or "",
            namespace=namespace or "",
            ring=ring,
            port=port,
        )
    target.refuse([action for schedule in schedules for action in schedule.fleet_actions])
    session = Session(
        run=secrets.token_hex(4),
        target=target,
        schedules=schedules,
        template=manifest,
        limits=limits,
        objects=objects,
        locust=LocustOptions(out=out, processes=processes, workers=expect_workers, web_port=web_port),
        template_path=str(template or ""),
        form=output,
    )
    session.prepare_folders()
    runtime.configure_logging(format="auto", level="error")
    return runtime.run(run_session(session))


@app.command()
def capacity(
    *,
    replicas: Annotated[
        str, typer.Option("--replicas", metavar="N,N", help="Numbers of replicas, in this order.")
    ] = "1,2,3",
    scenario: Annotated[
        str, typer.Option("--scenario", metavar="SCENARIO", help="What each trial does.")
    ] = "steady",
    objects: Objects = 1_000,
    rate: Annotated[
        float, typer.Option("--rate", min=0.5, help="Operations per second of one replica to begin with.")
    ] = 20.0,
    trial: Annotated[
        str, typer.Option("--trial", metavar="TIME", help="Length of one trial: 45s, 2m.")
    ] = "45s",
    precision: Annotated[
        str, typer.Option("--precision", metavar="PART", help="How exactly the limit is found: 3%, 10%.")
    ] = "3%",
    wait_ms: Annotated[
        int | None,
        typer.Option(
            "--wait-ms", min=0, help="Wait of the example's reconciles, as for a call. Default: 300."
        ),
    ] = None,
    baseline: Annotated[
        str,
        typer.Option(
            "--baseline", metavar="WAY,WAY", help="Other ways to measure: leader-elected, kopf, or both."
        ),
    ] = "",
    imbalance_percent: Annotated[
        int | None,
        typer.Option(
            "--imbalance-percent", metavar="N", help="Of the own fleet's ring. Default: the ring's, 5."
        ),
    ] = None,
    plane: Plane = "embedded",
    workers: Workers = 8,
    controller: ControllerFile = "",
    template: TemplateFile = None,
    slo: SloFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    ring: RingName = "websites",
    port: ProbesPort = 8081,
    out: Out = Path("build/capacity"),
    output: Output = None,
) -> int:
    """Find the highest rate that keeps the service level, for each number of replicas.

    Exit codes: 0 each number carries something, 1 one does not, 2 bad input.
    """
    from kubeio.program import runtime
    from loadtest.capacity.capacity import CapacityOptions, run_capacity
    from loadtest.inputs.replicas import parse_baselines, parse_imbalance, parse_precision, parse_replicas
    from loadtest.inputs.scenario import read_scenario
    from loadtest.inputs.slo import read_slo
    from loadtest.inputs.template import read_template
    from loadtest.load import LocustOptions
    from loadtest.session import Session, prepare_folder
    from loadtest.targets.cluster import ClusterOptions
    from loadtest.targets.own import OwnOptions
    from loadtest.targets.target import Way
    from ringleader.testing.commands import WAIT_FOR, WAIT_MS

    numbers, trial_s = parse_replicas(replicas), parse_duration("--trial", trial)
    part, is_own = parse_precision(precision), kubeconfig is None and context is None
    if wait_ms is not None and controller:
        raise InputError("--wait-ms", wait_ms, "is of the example", "leave it out beside --controller")
    runs_example = is_own and not controller
    baselines = parse_baselines(baseline)
    if Way.KOPF in baselines and not (runs_example and find_spec("kopf")):
        raise InputError(
            "--baseline",
            "kopf",
            "needs the example's controller and the package kopf",
            "leave --controller out, and `pip install kopf`",
        )
    example_wait_ms = (_EXAMPLE_WAIT_MS if wait_ms is None else wait_ms) if runs_example else None
    schedule = read_scenario(scenario).schedule(duration_s=trial_s, rate=rate)
    manifest, limits = read_template(template), read_slo(slo)
    # where nothing is created, preparing the objects need not wait
    waits_for = "changes" if schedule.creates else "updates"
    if is_own:
        own = OwnOptions(
            real=plane == "real",
            replicas=numbers[0],
            workers=workers,
            namespace=namespace or _OWN_NAMESPACE,
            ring=ring,
            controller=controller,
            group=manifest.group,
            environment={WAIT_MS: str(example_wait_ms), WAIT_FOR: waits_for} if runs_example else {},
            imbalance_percent=parse_imbalance(imbalance_percent),
        )
        own.refuse_template(manifest)
        target: OwnOptions | ClusterOptions = own
    else:
        _refuse_on_cluster(
            {
                "--controller": controller,
                "--baseline": baseline,
                "--wait-ms": "" if wait_ms is None else str(wait_ms),
                "--imbalance-percent": "" if imbalance_percent is None else str(imbalance_percent),
            }
        )
        target = ClusterOptions(
            kubeconfig=kubeconfig or "",
            context=context or "",
            namespace=namespace or "",
            ring=ring,
            port=port,
        )
    target.refuse(schedule.fleet_actions)
    prepare_folder(out)
    session = Session(
        run=secrets.token_hex(4),
        target=target,
        schedules=[schedule],
        template=manifest,
        limits=limits,
        objects=objects,
        locust=LocustOptions(out=out, processes=0, workers=0, web_port=0),
        template_path=str(template or ""),
        form=output,
    )
    options = CapacityOptions(
        replicas=numbers,
        scenario=scenario,
        trial_s=trial_s,
        first_per_s=rate,
        precision=part,
        reconcile_wait_ms=example_wait_ms,
        baselines=baselines,
    )
    runtime.configure_logging(format="auto", level="error")
    return runtime.run(run_capacity(session, options))


@app.command()
def scenarios(*, output: Output = None) -> int:
    """List the built-in scenarios."""
    from loadtest.inputs.scenario import built_in, read_scenario

    found = [read_scenario(name) for name in built_in()]
    if output in (Form.JSON, Form.YAML):
        rows = [{"name": each.name, "description": each.description} for each in found]
        print_document({"scenarios": rows}, form=output)
        return 0
    if output is Form.NAME:
        for each in found:
            print_line(each.name)
        return 0
    print_table(
        Table(("NAME", "DESCRIPTION"), [(each.name, each.description) for each in found]), form=output
    )
    return 0


@app.command()
def teardown(
    *,
    run_id: Annotated[str, typer.Option("--run", metavar="ID", help="The run, as it said at its start.")],
    template: TemplateFile = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Delete what a run left behind: the objects with its label, and nothing else."""
    from kubeio.program import runtime
    from loadtest.inputs.template import read_template
    from loadtest.progress import Console
    from loadtest.session import removed
    from loadtest.teardown import Leftovers

    if _RUN.match(run_id) is None:
        raise InputError(
            "--run", run_id, "is not the id of a run", "take the one that the run said at its start"
        )
    left = Leftovers(run_id, namespace or "", str(template or ""), kubeconfig or "", context or "")
    runtime.configure_logging(format="auto", level="error")
    return runtime.run(removed(left, read_template(template), Console()))
