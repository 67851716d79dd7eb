"""`ringleader proxy --render` puts the proxy before a controller, and refuses manifests that this cannot be done to."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from proxy.settings import read_settings
from ringleader.__main__ import main
from ringleader.unmodified import is_render

Doc = dict[str, Any]
RING = """
apiVersion: ringleader.dev/v1alpha1
kind: ControllerRing
metadata: {name: sites}
spec:
  leaseNamespace: rings
  key: Owner
  resources: [{group: example.com, resource: websites, controlledResources: [{resource: configmaps}]}]
"""
WORKLOAD = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: manager, namespace: system}
spec:
  replicas: 2
  selector: {matchLabels: {app: manager}}
  template:
    metadata: {labels: {app: manager}}
    spec:
      serviceAccountName: manager
      volumes: [{name: own, emptyDir: {}}]
      containers:
        - name: manager
          image: registry.example.com/manager:1
          command: [/manager]
          args: [--leader-elect]
          env: [{name: TZ, value: UTC}]
          ports: [{name: health, containerPort: 8081}]
          volumeMounts: [{name: own, mountPath: /own}]
          livenessProbe: {httpGet: {path: /healthz, port: health}}
          readinessProbe: {httpGet: {path: /readyz, port: health}}
          startupProbe: {httpGet: {path: /readyz, port: health}}
"""
OTHER = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "manager", "namespace": "system"}}


class Rendering:
    """The command, on files of a test."""

    def __init__(
        self, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.ring, self._file = folder / "ring.yaml", folder / "workload.yaml"
        self.ring.write_text(RING)
        self._capfd, self._monkeypatch = capfd, monkeypatch

    def run(self, *documents: Doc, words: tuple[str, ...] = (), file: str = "") -> tuple[int, str, str]:
        """Exit code, output and error output."""
        self._file.write_text(yaml.safe_dump_all(documents))
        named = ["proxy", "--render", file or str(self._file), "--ring-file", str(self.ring), *words]
        self._monkeypatch.setattr("sys.argv", ["ringleader", *named])
        code = main(named)
        return code, *self._capfd.readouterr()

    def documents(self, *documents: Doc, words: tuple[str, ...] = ()) -> list[Doc]:
        code, out, err = self.run(*documents, words=words)
        assert (code, err) == (0, "")
        return list(yaml.safe_load_all(out))

    def container(self, workload: Doc, *words: str) -> Doc:
        (rendered, *_) = self.documents(workload, words=words)
        found: Doc = rendered["spec"]["template"]["spec"]["containers"][0]
        return found


@pytest.fixture
def rendering(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Rendering:
    return Rendering(tmp_path, capfd, monkeypatch)


def workload(change: Callable[[Any], object] = lambda parts: None) -> Doc:
    """The StatefulSet; *change* gets its `doc`, `pod` and `container`."""
    doc: Doc = yaml.safe_load(WORKLOAD)
    pod = doc["spec"]["template"]["spec"]
    change(SimpleNamespace(doc=doc, pod=pod, container=pod["containers"][0]))
    return doc


def test_the_proxy_stands_before_the_controller_and_all_else_stays(rendering: Rendering) -> None:
    before = workload()
    other, after, *rights = rendering.documents(OTHER, before, words=("--image=registry.example.com/r:1",))
    assert other == OTHER
    pod = after["spec"]["template"]["spec"]
    (init,), (container,) = pod["initContainers"], pod["containers"]
    assert init["image"] == "registry.example.com/r:1"
    assert container["image"] == "registry.example.com/manager:1"
    assert container["env"][0] == {"name": "TZ", "value": "UTC"}
    assert {"own", "ringleader"} < {volume["name"] for volume in pod["volumes"]}
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "proxy"}
    assert "startupProbe" not in container
    restored = copy.deepcopy(after)
    restored["spec"]["template"]["spec"] = before["spec"]["template"]["spec"]
    assert restored == before
    assert [(each["kind"], each["metadata"]["name"]) for each in rights] == [
        ("ClusterRole", "ringleader-sites-manager"),
        ("ClusterRoleBinding", "ringleader-sites-manager"),
        ("Role", "ringleader-sites-manager-scale"),
        ("RoleBinding", "ringleader-sites-manager-scale"),
        ("Role", "ringleader-sites-manager-leases"),
        ("RoleBinding", "ringleader-sites-manager-leases"),
        ("Role", "ringleader-sites-manager-itself"),
        ("RoleBinding", "ringleader-sites-manager-itself"),
    ]
    assert {each["metadata"].get("namespace") for each in rights} == {None, "system", "rings"}
    verbs = ["get", "list", "watch", "patch"]
    assert rights[0]["rules"][-4:-2] == [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs},
        {"apiGroups": ["example.com"], "resources": ["websites"], "verbs": verbs},
    ]


def test_the_proxy_understands_its_flags(rendering: Rendering, monkeypatch: pytest.MonkeyPatch) -> None:
    container = rendering.container(workload(), "--locks=a,b", "--lease-duration", "10s")
    monkeypatch.setattr("shutil.which", lambda _: "/manager")  # it is not on this machine
    settings = read_settings(container["args"])
    assert settings.command == ("/manager", "--leader-elect")
    assert (settings.ring, settings.hold, settings.locks) == ("sites", True, ("a", "b"))
    assert (settings.lease_duration_s, settings.termination_grace_s) == (10, 90)
    assert settings.controller_readiness == "http://127.0.0.1:8081/readyz"
    assert settings.controller_liveness == "http://127.0.0.1:8081/healthz"


def test_a_deployment_holds_no_place_and_words_of_the_command_line_win(rendering: Rendering) -> None:
    deployment = workload(lambda parts: (parts.doc.update(kind="Deployment"), parts.container.pop("command")))
    args = rendering.container(deployment, "--stop-within=200s", "--", "/other", "--flag")["args"]
    assert args[args.index("--") :] == ["--", "/other", "--flag"]
    assert "--hold" not in args
    (rendered, *_) = rendering.documents(deployment, words=("--stop-within=200s", "--", "/other"))
    assert rendered["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 260


def test_the_manifest_may_come_through_a_pipe(rendering: Rendering, monkeypatch: pytest.MonkeyPatch) -> None:
    piped = io.TextIOWrapper(io.BytesIO(WORKLOAD.encode()))
    monkeypatch.setattr("sys.stdin", piped)
    code, out, _ = rendering.run(file="-")
    assert code == 0
    assert next(yaml.safe_load_all(out))["metadata"]["name"] == "manager"


@pytest.mark.parametrize(
    ("doc", "words", "said"),
    [
        (OTHER, (), "has no Deployment or StatefulSet; give the one that runs the controller"),
        (
            workload(lambda parts: parts.doc["metadata"].pop("namespace")),
            (),
            "error: metadata.namespace: '' is missing in StatefulSet manager; write it:",
        ),
        (
            workload(lambda parts: parts.pod.pop("containers")),
            (),
            "has a workload without name or containers; write it as for kubectl apply -f",
        ),
        (
            workload(lambda parts: parts.pod.pop("serviceAccountName")),
            (),
            "error: serviceAccountName: 'default' is every pod's; give the controller an account of its own",
        ),
        (
            workload(lambda parts: parts.container.pop("command")),
            (),
            "error: containers.manager.command: '' is missing; write it after `--`",
        ),
        (
            workload(lambda parts: parts.pod["containers"].append({"name": "beside"})),
            (),
            "error: --container is missing; the pod has manager, beside: name the controller's",
        ),
        (workload(), ("--container=x",), "error: --container: 'x' is not in the pod; use manager"),
        (
            workload(lambda parts: parts.container.update(readinessProbe={"tcpSocket": {"port": 1}})),
            (),
            "containers.manager.readinessProbe: 'tcpSocket' is nothing that the proxy can ask",
        ),
        (
            workload(lambda parts: parts.container.update(ports=[])),
            (),
            "containers.manager.readinessProbe: 'health' is no port of the container; write its number",
        ),
        (
            workload(lambda parts: parts.container["env"].append({"name": "POD_NAME", "value": "x"})),
            (),
            "containers.manager.env: 'POD_NAME' is what the proxy needs, and stands for something else",
        ),
        (
            workload(
                lambda parts: parts.container["volumeMounts"].append(
                    {"name": "own", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
                )
            ),
            (),
            "containers.manager.volumeMounts: '/var/run/secrets/kubernetes.io/serviceaccount' is what the proxy",
        ),
        (workload(), ("--member=x",), "error: --member is set by --render itself; leave it out"),
        (workload(), ("--leaves=pods",), "error: --leaves: 'pods' is controlled by nothing in this ring"),
        (
            workload(),
            ("--resources=shops.example.com",),
            "error: --resources: 'shops.example.com' is not distributed by the ring; use websites.example.com",
        ),
        (workload(), ("--lease-duration=x",), "error: --lease-duration: 'x' is not a duration"),
    ],
)
def test_what_cannot_be_rendered_is_refused_in_one_line(
    rendering: Rendering, doc: Doc, words: tuple[str, ...], said: str
) -> None:
    code, out, err = rendering.run(doc, words=words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_workload_is_rendered_once(rendering: Rendering) -> None:
    (rendered, *_) = rendering.documents(workload())
    code, _, err = rendering.run(rendered)
    assert code == 2
    assert "initContainers: 'ringleader' is there: the workload was rendered before; give its source" in err


def test_a_file_that_is_no_yaml_and_one_that_is_missing_are_refused(rendering: Rendering) -> None:
    bad = rendering.ring.with_name("bad.yaml")
    bad.write_text("a: [")
    code, _, err = rendering.run(file=str(bad))
    assert (code, err) == (
        2,
        f"error: --render: '{bad}' is not YAML of objects; write it as for kubectl apply -f\n",
    )
    missing = rendering.ring.with_name("missing.yaml")
    code, _, err = rendering.run(file=str(missing))
    assert (code, err) == (2, f"error: --render: '{missing}' does not exist; name a readable file\n")


def test_words_of_the_controller_do_not_ask_for_a_manifest() -> None:
    assert is_render(["--render=x"])
    assert not is_render(["--ring", "r", "--", "/manager", "--render"])
