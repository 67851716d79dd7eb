"""Observability of reconciles: metrics, history, journal, spans, progress."""
