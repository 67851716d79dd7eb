"""What the process kubelet makes of a container: its probes."""

from __future__ import annotations

from ringleader.testing.containers import probe_of


def test_a_container_may_be_ill_for_as_long_as_its_probe_says() -> None:
    """A period that tests shorten kills nothing that a kubelet would let live: a slow start on a busy machine."""
    declared = {"httpGet": {"path": "/livez", "port": 8080}, "failureThreshold": 6, "initialDelaySeconds": 5}
    container = {"name": "web", "livenessProbe": declared}
    probe = probe_of(container, "livenessProbe", address="127.0.0.1", longest_period_s=0.3)
    assert probe is not None
    assert probe.period_s == 0.3
    assert probe.fails_after_s == 60
    assert probe.delay_s == 5
