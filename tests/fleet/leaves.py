"""What an exception group holds."""

from __future__ import annotations


def leaves(group: BaseExceptionGroup[AssertionError]) -> list[BaseException]:
    """The exceptions of *group* and of the groups in it."""
    return [
        leaf
        for each in group.exceptions
        for leaf in (leaves(each) if isinstance(each, BaseExceptionGroup) else [each])
    ]
