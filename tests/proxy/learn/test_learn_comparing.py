"""Labels of an owner in the pod templates of its children."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.learn.comparing import copied_labels, template_labels


def workload(**labels: str) -> dict[str, Any]:
    return {"kind": "Deployment", "spec": {"template": {"metadata": {"labels": labels}}}}


def test_templates_are_found_at_any_depth() -> None:
    cron = {"spec": {"jobTemplate": {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}}}
    listed = {"spec": {"claims": [{"template": {"metadata": {"labels": {"c": "d"}}}}]}}
    assert template_labels(cron) == [{"a": "b"}]
    assert template_labels(listed) == [{"c": "d"}]
    assert template_labels({"spec": {"template": {"metadata": None}}, "data": "x"}) == []


@pytest.mark.parametrize(
    ("owner_labels", "owner_spec", "template", "expected"),
    [
        ({"team": "a"}, {}, {"team": "a", "app": "x"}, (True, ["team=a"])),
        ({"team": "a"}, {}, {"team": "b"}, (True, [])),
        ({}, {}, {"team": "a"}, (False, [])),
        # the owner says it in its own template: the label may come from there
        ({"app": "x"}, workload(app="x")["spec"], {"app": "x"}, (False, [])),
        ({"app": "x"}, {"selector": {"matchLabels": {"app": "x"}}}, {"app": "x"}, (False, [])),
        ({"app": "x", "team": "a"}, workload(app="x")["spec"], {"app": "x", "team": "a"}, (True, ["team=a"])),
    ],
)
def test_a_label_that_only_the_owner_s_metadata_says_proves_a_copy(
    owner_labels: dict[str, str],
    owner_spec: dict[str, Any],
    template: dict[str, str],
    expected: tuple[bool, list[str]],
) -> None:
    owner = {"metadata": {"labels": owner_labels}, "spec": owner_spec}
    assert copied_labels(owner, template_labels(workload(**template))) == expected
