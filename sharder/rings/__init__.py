"""Rings that come, change and go: where each stands, its rooms composed and started, its status told."""
