"""Objects that are born with an owner, in every order of events of the small world of `tests.sharder.model`.

The label may be any name whose Lease was there at some time: an answer that rested on evidence once, and is stored
however late, while that life lives, is suspended, forced, dead, or its Lease deleted. What holds then is what holds for
every object: nobody works on it at the same time as somebody else, no old write reaches it, and somebody gets it.
"""

from __future__ import annotations

import pytest

from tests.sharder.model.exploration import explore
from tests.sharder.model.world import Rules, Setting

pytestmark = pytest.mark.timeout(600)  # computes all the time: minutes on a crowded machine
BEGINNING = 8_000


def born(**faults: int) -> Setting:
    return Setting({"recreate": 1, **faults}, is_born_labelled=True)


def test_a_label_given_long_ago_breaks_nothing_and_the_object_still_gets_its_owner() -> None:
    explored = explore(born(), backwards=True)
    assert explored.broken is None, explored.tell()
    assert explored.is_complete
    assert any("as a-1's" in step for world in explored.came_from for step in explored.run_to(world)[-1:])
    stuck = explored.stuck()
    assert stuck is None, "\n".join([*explored.run_to(stuck), str(stuck)])


@pytest.mark.parametrize("fault", ["crash", "cut", "suspend", "delete", "force", "lose_answer", "release"])
def test_nor_does_it_when_the_one_it_names_comes_to_harm(fault: str) -> None:
    explored = explore(born(**{fault: 1}), at_most=BEGINNING)
    assert explored.broken is None, explored.tell()
    assert len(explored.came_from) >= BEGINNING


def test_it_is_the_uid_in_every_write_that_keeps_the_old_reconcile_off_the_new_object() -> None:
    assert explore(born(), Rules(writes_test_the_uid=False)).broken is not None
