"""The load test of a fleet (`ringleader loadtest`).

Modules: `command`, `session`, `run`, `load`, `locustfile`, `inputs/`, `targets/`, `observing/`, `reporting/`.
"""
