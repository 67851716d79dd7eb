"""Every failure a person can cause becomes one message that says what to do, and the right exit code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kubeio.errors import Forbidden, InputError, NotFound, Unauthorized, Unreachable
from kubeio.program.failures import failure
from ringleader.__main__ import main
from tests.warm_python import warm_python


def forbidden(message: str) -> Forbidden:
    return Forbidden("LIST leases", status=403, reason="Forbidden", message=message)


def test_forbidden_names_verb_resource_and_the_rule_that_grants_it() -> None:
    told = failure(
        forbidden(
            'leases.coordination.k8s.io is forbidden: User "ada" cannot list resource "leases" in API group '
            '"coordination.k8s.io" in the namespace "sites"'
        )
    )
    assert told.exit_code == 1
    assert '"ada" may not list leases.coordination.k8s.io in namespace sites' in told.message
    assert 'in a Role bound to it grants that: {apiGroups: ["coordination.k8s.io"]' in told.message
    assert 'resources: ["leases"], verbs: ["list"]}' in told.message


def test_a_right_for_the_whole_cluster_wants_a_clusterrole() -> None:
    told = failure(
        forbidden(
            'controllerrings.ringleader.dev is forbidden: User "ada" cannot list resource "controllerrings" in '
            'API group "ringleader.dev" at the cluster scope'
        )
    )
    assert "in the whole cluster" in told.message
    assert "a ClusterRole" in told.message


def test_a_refusal_in_other_words_is_passed_on() -> None:
    assert "forbidden: go away" in failure(forbidden("go away")).message


def test_unreachable_names_the_server_the_reason_and_what_to_check() -> None:
    told = failure(
        Unreachable("GET /apis", "connection refused", maybe_done=False), server="https://10.0.0.1:6443"
    )
    assert told.exit_code == 1
    assert told.message.startswith("https://10.0.0.1:6443: no answer: connection refused;")
    assert "--context" in told.message


def test_unauthorized_says_that_credentials_are_not_accepted() -> None:
    told = failure(Unauthorized("GET /apis", status=401, message="token expired"), server="https://x")
    assert "401 token expired" in told.message
    assert "renew them in the kubeconfig" in told.message


def test_a_missing_definition_tells_the_command_that_installs_it() -> None:
    missing = NotFound(
        "GET /apis/ringleader.dev/v1alpha1/controllerrings",
        status=404,
        message="the server could not find the requested resource",
    )
    assert "install it: ringleader crds | kubectl apply --server-side -f -" in failure(missing).message
    absent = NotFound(
        "GET /apis/ringleader.dev/v1alpha1/controllerrings/x",
        status=404,
        message='controllerrings.ringleader.dev "x" not found',
    )
    assert "not installed" not in failure(absent).message


def test_bad_input_is_exit_code_2() -> None:
    assert failure(InputError("--x", 1, "is odd", "use 2")).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demoo"], ["No such command 'demoo'", "Did you mean 'demo'?", "ringleader -h"]),
        (["demo", "--headles"], ["No such option: --headles", "--headless", "ringleader demo -h"]),
        (["demo", "--objects", "many"], ["--objects", "'many'", "integer"]),
        (["demo", "--objects=3"], ["--objects", "'3'", "20"]),
        (["status", "-o", "xml"], ["'-o'", "'xml'", "json"]),
        (["status", "--request-timeout", "5y"], ["--request-timeout", "5y", "1m30s"]),
        (["describe", "blog"], ["KIND/NAME", "blog", "website/blog"]),
        (["status", "--kubeconfig", "/nowhere/config"], ["--kubeconfig", "/nowhere/config"]),
    ],
)
def test_bad_input_is_one_line_with_field_value_and_remedy(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("error: ")
    for word in words:
        assert word in printed.err


def test_a_server_that_is_not_there_is_exit_code_1(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n"
    )
    command = [warm_python(), "-m", "ringleader", "status", "--kubeconfig", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert ended.returncode == 1
    assert "https://127.0.0.1:1: no answer" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("arguments", [["-h"], ["status", "-h"], ["describe", "--help"], ["demo", "-h"]])
def test_help_is_everywhere(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    assert "Usage: ringleader" in capsys.readouterr().out


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("ringleader ")
