"""The load test of a fleet (`ringleader loadtest`), and the benchmarks of this project beside it.

The load test: `command`, `session`, `run`, `load`, `locustfile`, `inputs/`, `targets/`, `observing/`, `reporting/`.
"""
