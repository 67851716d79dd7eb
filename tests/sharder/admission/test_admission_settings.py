"""The webhook's flags, and what is said about those that cannot be used. Pure."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from kubeio.errors import InputError
from sharder.admission.settings import ServiceTarget, UrlTarget, WebhookSettings, read_flags


def flags(**given: str) -> WebhookSettings | None:
    usual: dict[str, Any] = {"bind": ":9443", "service": "", "url": "", "secret": "", "namespace": "system"}
    return read_flags(**{**usual, **given})


def test_without_the_flag_there_is_no_webhook() -> None:
    assert flags(bind="") is None


def test_a_service_is_named_with_its_namespace_and_perhaps_a_port() -> None:
    found = flags(service="system/hook:8443", secret="keys")
    assert found is not None
    assert found.target == ServiceTarget("system", "hook", 8443)
    assert found.target.host == "hook.system.svc"
    assert (found.host, found.port, found.namespace, found.secret) == ("", 9443, "system", "keys")
    usual = flags(service="system/hook")
    assert usual is not None
    assert usual.target == ServiceTarget("system", "hook", 443)
    assert usual.secret == "ringleader-webhook"


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://127.0.0.1:9443", UrlTarget("https://127.0.0.1:9443", "127.0.0.1")),
        ("https://[::1]:9443/", UrlTarget("https://[::1]:9443", "::1")),
        ("https://hooks.example.com/ring", UrlTarget("https://hooks.example.com/ring", "hooks.example.com")),
    ],
)
def test_an_address_gives_the_name_that_the_certificate_needs(url: str, target: UrlTarget) -> None:
    found = flags(url=url)
    assert found is not None
    assert found.target == target


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "--webhook-bind: ':9443' is not all"),
        ({"service": "a/b", "url": "https://x"}, "--webhook-bind: ':9443' is not all"),
        ({"bind": "9443", "service": "a/b"}, "--webhook-bind: '9443' is not an address"),
        ({"service": "b"}, "--webhook-service: 'b' is not a Service"),
        ({"service": "a/"}, "--webhook-service: 'a/' is not a Service"),
        ({"service": "a/b:x"}, "--webhook-service: 'a/b:x' is not a Service"),
        ({"service": "a/b:0"}, "--webhook-service: 'a/b:0' is not a Service"),
        ({"service": "A/b"}, "--webhook-service: 'A' cannot be a namespace"),
        ({"url": "http://x"}, "--webhook-url: 'http://x' is no address"),
        ({"url": "https://"}, "--webhook-url: 'https://' is no address"),
        ({"url": "https://x:y"}, "--webhook-url: 'https://x:y' is no address"),
        ({"url": "https://[x"}, r"--webhook-url: 'https://\[x' is no address"),
        ({"url": "https://ada@x"}, "--webhook-url: 'https://ada@x' is no address"),
        ({"url": "https://x?a=b"}, "--webhook-url: .* is no address"),
        ({"bind": "", "service": "a/b"}, "--webhook-service: 'a/b' does nothing without --webhook-bind"),
        ({"bind": "", "url": "https://x"}, "--webhook-url: .* does nothing without --webhook-bind"),
        ({"bind": "", "secret": "x"}, "--webhook-secret: 'x' does nothing without --webhook-bind"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_flag(given: dict[str, str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        flags(**given)


def test_a_sharder_without_the_webhook_does_not_load_what_makes_certificates() -> None:
    code = "import sys, sharder.app, sharder.rings.controller; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
