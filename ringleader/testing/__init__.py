"""For tests of controllers: a control plane and a fleet of real processes, broken on purpose and checked.

`ringleader.testing.plugin` holds the pytest fixtures; `open_fleet` is the same without pytest.
"""

from kubeio.program.import_check import check_packages

check_packages()  # a foreign `ring` would fail further down, with a useless message

from ringleader.testing.fleet import Fleet, open_fleet  # noqa: E402 - after the check

__all__ = ["Fleet", "open_fleet"]
