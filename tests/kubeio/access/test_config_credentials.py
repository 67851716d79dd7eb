"""Credentials renew themselves: files when they change, plugins before they expire."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeio.access.credentials import FetchedCredential, FileCredentials, PluginCredentials
from kubeio.clock import ManualClock
from kubeio.errors import InputError, Unreachable
from kubeio.http.endpoint import Credential, KeyPair
from tests.kubeio.access.conftest import Load
from tests.kubeio.access.kubeconfigs import Ca

# -- files -----------------------------------------------------------------------------------------------


class TokenFile:
    """A file that said `one` when its credentials were made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        path.write_text("one")
        os.utime(path, (1, 1))
        self.credentials = FileCredentials([path], self._read, self.clock)

    def _read(self) -> Credential:
        try:
            return Credential(self.path.read_text())
        except OSError as error:
            raise InputError("tokenFile", str(self.path), "cannot be read", "name a file") from error

    def says(self, text: str, *, after_s: float = 0.0) -> bool:
        self.clock.advance(after_s)
        return self.credentials.current() == Credential(text)


@pytest.fixture
def token(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "token")


def test_changed_file_is_read_within_a_second(token: TokenFile) -> None:
    token.path.write_text("two!")
    assert token.says("one")
    assert token.says("two!", after_s=1)


def test_file_changed_without_a_trace_is_read_within_a_minute(token: TokenFile) -> None:
    token.path.write_text("two")
    os.utime(token.path, (1, 1))
    assert token.says("one", after_s=59)
    assert token.says("two", after_s=1)


def test_refused_file_is_read_at_once(token: TokenFile) -> None:
    token.path.write_text("two")
    token.credentials.reject(Credential("something else"))
    assert token.says("one")
    token.credentials.reject(Credential("one"))
    assert token.says("two")


def test_file_that_is_away_for_a_moment_leaves_the_old_credential(token: TokenFile) -> None:
    token.path.unlink()
    assert token.says("one", after_s=61)
    token.path.write_text("two")
    assert token.says("two", after_s=1)


async def test_token_file_of_a_kubeconfig_is_read_again_when_refused(load: Load, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    credentials = load(user={"tokenFile": "token"}).credentials
    (tmp_path / "token").write_text("two\n")
    credentials.reject(Credential("Bearer one"))
    assert credentials.current() == await credentials.renewed() == Credential("Bearer two")


def test_rotated_client_certificate_files_are_read_again(load: Load, tmp_path: Path, ca: Ca) -> None:
    (tmp_path / "crt").write_bytes(ca.certificate)
    (tmp_path / "key").write_bytes(ca.key)
    user: dict[str, object] = {"client-certificate": "crt", "client-key": "key"}
    credentials = load(user=user).credentials
    old = credentials.current()
    assert old == Credential("", KeyPair(ca.certificate, ca.key))
    (tmp_path / "crt").write_bytes(ca.certificate + b"# new\n")
    credentials.reject(old)
    assert credentials.current() == Credential("", KeyPair(ca.certificate + b"# new\n", ca.key))


# -- renewal, with a plugin that is a function ------------------------------------------------------------


class Plugin:
    """Gives token-1, token-2, ...; may be slow or fail."""

    def __init__(self, life_s: float | None = 100.0) -> None:
        self.life_s = life_s
        self.runs = 0
        self.failure: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self) -> FetchedCredential:
        self.runs += 1
        number = self.runs
        assert self.gate.wait(5)
        if self.failure is not None:
            raise self.failure
        return FetchedCredential(Credential(f"token-{number}"), self.life_s)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what a thread does."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    pytest.fail("did not come to pass within 5 s")


async def test_many_waiters_in_several_event_loops_share_one_run() -> None:
    plugin = Plugin()
    plugin.gate.clear()
    source = PluginCredentials(plugin, ManualClock(), "plugin")
    assert source.current() is None
    elsewhere = [asyncio.to_thread(asyncio.run, source.renewed()) for _ in range(3)]
    waiters = asyncio.gather(*elsewhere, *(source.renewed() for _ in range(20)))
    await asyncio.sleep(0.05)
    plugin.gate.set()
    assert await waiters == [Credential("token-1")] * 23
    assert plugin.runs == 1
    assert source.current() == Credential("token-1")


async def test_cancelled_waiter_leaves_the_run_to_the_others() -> None:
    plugin = Plugin()
    plugin.gate.clear()
    source = PluginCredentials(plugin, ManualClock(), "plugin")
    waiters = [asyncio.ensure_future(source.renewed()) for _ in range(2)]
    await asyncio.sleep(0.02)
    waiters[0].cancel()
    await asyncio.sleep(0.02)
    plugin.gate.set()
    assert await waiters[1] == Credential("token-1")
    assert plugin.runs == 1


async def given(life_s: float | None = 100) -> tuple[Plugin, ManualClock, PluginCredentials]:
    """Credentials that have their first token."""
    plugin, clock = Plugin(life_s), ManualClock()
    source = PluginCredentials(plugin, clock, "exec plugin aws")
    assert await source.renewed() == Credential("token-1")
    return plugin, clock, source


async def test_credential_is_renewed_in_the_background_before_its_life_ends() -> None:
    plugin, clock, source = await given()
    clock.advance(79)
    assert source.current() == Credential("token-1")
    assert plugin.runs == 1
    plugin.gate.clear()
    clock.advance(2)
    assert source.current() == Credential("token-1"), "the old one serves while the new one comes"
    plugin.gate.set()
    await until(lambda: source.current() == Credential("token-2"))
    assert plugin.runs == 2


async def test_credential_at_the_end_of_its_life_is_not_used() -> None:
    _, clock, source = await given()
    clock.advance(96)
    assert source.current() is None
    assert await source.renewed() == Credential("token-2")


async def test_without_an_end_a_credential_lives_until_it_is_refused() -> None:
    _, clock, source = await given(life_s=None)
    clock.advance(10**9)
    assert source.current() == Credential("token-1")


async def test_refused_credential_is_renewed_once() -> None:
    _, clock, source = await given()
    first = await source.renewed()
    clock.advance(2)
    for _ in range(10):
        source.reject(first)
    assert source.current() is None
    second = await source.renewed()
    source.reject(first)  # a late answer to an old request
    assert source.current() == second == Credential("token-2")


async def test_account_that_is_always_refused_does_not_run_the_plugin_for_ever() -> None:
    plugin, clock = Plugin(), ManualClock()
    source = PluginCredentials(plugin, clock, "plugin")
    for _ in range(50):
        credential = source.current() or await source.renewed()
        source.reject(credential)
        clock.advance(0.1)
    assert plugin.runs <= 6


async def test_first_failure_is_the_input_error_itself() -> None:
    plugin, clock = Plugin(), ManualClock()
    plugin.failure = InputError("exec", "aws", "failed", "log in")
    source = PluginCredentials(plugin, clock, "plugin")
    with pytest.raises(InputError, match="log in"):
        await source.renewed()
    with pytest.raises(InputError, match="log in"):
        await source.renewed()
    assert plugin.runs == 1, "not again within a second"
    clock.advance(1)
    plugin.failure = None
    assert await source.renewed() == Credential("token-2")


async def test_failure_of_what_once_worked_is_an_outage_and_not_a_mistake() -> None:
    plugin, clock, source = await given()
    plugin.failure = InputError("exec", "aws", "failed", "log in")
    clock.advance(85)
    assert source.current() == Credential("token-1")
    await until(lambda: plugin.runs == 2)
    assert source.current() == Credential("token-1"), "still good"
    clock.advance(20)
    assert source.current() is None
    with pytest.raises(Unreachable, match=r"exec plugin aws: .*log in"):
        await source.renewed()
    plugin.failure = None
    clock.advance(1)
    assert (await source.renewed()).authorization.startswith("token-")


async def test_a_renewal_whose_thread_cannot_start_is_an_outage_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A container has a limit of pids, and threads count."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    _, clock, source = await given()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    clock.advance(85)
    assert source.current() == Credential("token-1"), "still good"
    clock.advance(20)
    assert source.current() is None
    with pytest.raises(Unreachable, match="can't start new thread"):
        await source.renewed()
    monkeypatch.undo()
    clock.advance(1)
    assert await source.renewed() == Credential("token-2")
