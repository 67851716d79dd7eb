"""Metrics of the webhook. Label values: names of rings that have an admission handler, and a closed set of outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from sharder.admission.review import Labelled, Verdict

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class AdmissionMetrics:
    """The webhook's collectors in one *registry*."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._admissions = Counter(
            "ringleader_admissions",
            "Objects that were created, by what the webhook did: labelled, or why not.",
            ["ring", "outcome"],
            registry=registry,
        )
        self._seconds = Histogram(
            "ringleader_admission_seconds",
            "From a whole request to its answer.",
            ["ring"],
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1),
            registry=registry,
        )
        self.certificate_expires_at = Gauge(
            "ringleader_webhook_certificate_expiry_timestamp_seconds",
            "When the certificate that this sharder serves ends (Unix time); 0 without one.",
            registry=registry,
        )

    def answered(self, ring: str, verdict: Verdict, seconds: float) -> None:
        """One answer went out."""
        outcome = "labelled" if isinstance(verdict, Labelled) else verdict.name.lower()
        self._admissions.labels(ring=ring, outcome=outcome).inc()
        self._seconds.labels(ring=ring).observe(seconds)

    def forget(self, ring: str) -> None:
        """Drop every series of *ring*: it is gone."""
        for collector in (self._admissions, self._seconds):
            collector.remove_by_labels({"ring": ring})
