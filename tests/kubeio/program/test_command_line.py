"""What a person writes wrong ends in one line, in which no other value than the wrong one is shown."""

from __future__ import annotations

import pytest
import typer

from kubeio.program.command_line import run_command

app = typer.Typer()


@app.command()
def weight(member: str, weight: float, *, most: int = 1) -> None:
    """An argument that is called like its command."""


@app.command()
def other() -> None:
    """So that the first one has to be named."""


@pytest.mark.parametrize(
    ("arguments", "shown", "hidden"),
    [
        (["weight", "web-0", "heavy"], "'weight'", "web-0"),
        (["weight", "web-0", "1", "--most", "many"], "(given: 'many')", "web-0"),
        (["weight", "web-0", "1", "--most=many"], "(given: 'many')", "web-0"),
    ],
)
def test_the_value_that_is_shown_is_the_one_that_is_wrong(
    arguments: list[str], shown: str, hidden: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(app, name="thing", arguments=arguments) == 2
    stderr = capsys.readouterr().err
    assert shown in stderr
    assert hidden not in stderr
    assert len(stderr.splitlines()) == 1
