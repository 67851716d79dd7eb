"""Which proxy counts, and whom NO_PROXY names."""

from __future__ import annotations

import pytest

from kubeio.access.proxies import is_exempt, parse_proxy, proxy_from_environment, without_password
from kubeio.errors import InputError
from kubeio.http.endpoint import Proxy


@pytest.mark.parametrize(
    ("host", "port", "no_proxy", "expected"),
    [
        ("api.example.com", 443, "", False),
        ("api.example.com", 443, "*", True),
        ("api.example.com", 443, "example.com", True),
        ("api.example.com", 443, ".example.com", True),
        ("api.example.com", 443, "*.example.com", True),
        ("API.Example.com.", 443, "EXAMPLE.com", True),
        ("example.com", 443, "example.com", True),
        ("example.com", 443, ".example.com", False),
        ("badexample.com", 443, "example.com", False),
        ("api.example.com", 443, "api.example.com:443", True),
        ("api.example.com", 6443, "api.example.com:443", False),
        ("api.example.com", 443, "other.org, api.example.com ,", True),
        ("10.0.0.1", 443, "10.0.0.0/8", True),
        ("11.0.0.1", 443, "10.0.0.0/8", False),
        ("10.0.0.1", 443, "10.0.0.1", True),
        ("10.0.0.1", 443, "10.0.0.1:443", True),
        ("10.0.0.1", 443, "10.0.0.1:80", False),
        ("10.0.0.10", 443, "10.0.0.1", False),
        ("fd00::1", 443, "fd00::/8", True),
        ("fd00::1", 443, "fd00::1", True),
        ("fd00::1", 443, "[fd00::1]:443", True),
        ("fd00::1", 443, "[fd00::1]:80", False),
        ("fd00:0::1", 443, "fd00::1", True),
        ("api.example.com", 443, "10.0.0.0/8", False),
        ("10.0.0.1", 443, "10.0.0.0/99", False),
        ("localhost", 443, "", True),
        ("127.0.0.1", 443, "", True),
        ("127.1.2.3", 443, "", True),
        ("::1", 443, "", True),
    ],
)
def test_no_proxy_names_hosts_as_in_kubectl(host: str, port: int, no_proxy: str, expected: bool) -> None:
    assert is_exempt(host, port, no_proxy) is expected


def test_environment_is_read_by_scheme_upper_case_first() -> None:
    environ = {"HTTPS_PROXY": "http://upper:1", "https_proxy": "http://lower:1", "http_proxy": "plain:2"}
    assert proxy_from_environment("https", "h", 443, environ) == Proxy("upper", 1)
    assert proxy_from_environment("http", "h", 80, environ) == Proxy("plain", 2)
    assert proxy_from_environment("https", "h", 443, {"https_proxy": "http://lower"}) == Proxy("lower", 80)
    assert proxy_from_environment("https", "h", 443, {**environ, "no_proxy": "h"}) is None
    assert proxy_from_environment("https", "h", 443, {}) is None


def test_password_in_the_url_becomes_a_header() -> None:
    proxy = parse_proxy("http://joe:p%40ss@proxy:3128", field="x")
    assert proxy == Proxy("proxy", 3128, "Basic am9lOnBAc3M=")
    assert "am9l" not in repr(proxy)


def test_ipv6_proxy() -> None:
    assert parse_proxy("http://[fd00::1]:3128", field="x") == Proxy("fd00::1", 3128)


def test_mistake_in_the_environment_names_the_variable_and_hides_the_password() -> None:
    environ = {"HTTPS_PROXY": "socks5://joe:hunter2@proxy:1080"}
    with pytest.raises(InputError) as caught:
        proxy_from_environment("https", "h", 443, environ)
    assert caught.value.field == "HTTPS_PROXY"
    assert caught.value.value == "socks5://joe:***@proxy:1080"
    assert without_password("proxy:1") == "proxy:1"
