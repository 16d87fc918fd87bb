"""`turnwright agents --diff`: what a change of agents does to bounds, tools, and what turns may do."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from turnwright.agents.front_matter import UnreadableFileError, read_text
from turnwright.cli.process import echo, echo_json
from turnwright.cli.screen import print_lines
from turnwright.errors import ConfigError
from turnwright_proof.certificates.agent_chart import agent_chart
from turnwright_proof.certificates.agent_diff import Known, agent_diffs, to_markdown

from .certified import Issuer, rules_of

if TYPE_CHECKING:
    from turnwright.config.config import Config


def print_diff(
    old: str,
    new: str,
    config: "Config",
    *,
    tools: str | None,
    hooks: Sequence[str],
    form: str,
    as_json: bool,
) -> None:
    """Print the difference of two sources of agents, as `text`, as `markdown`, or as one JSON object per line."""
    issuer = Issuer(config, tools, hooks)
    try:
        diffs = agent_diffs(_read(old, issuer), _read(new, issuer))
    except ConfigError as error:
        echo(error, err=True)
        raise typer.Exit(2) from None
    if as_json:
        for diff in diffs:
            echo_json(diff.to_json())
    elif form == "markdown":
        echo(to_markdown(diffs).removesuffix("\n"))
    else:
        print_lines([str(diff) for diff in diffs] or ["No bound of an agent changed."])


def _read(source: str, issuer: Issuer) -> dict[str, Known]:
    """Return the agents of a source with their charts. A blank file, as before the first agent, has none."""
    with suppress(UnreadableFileError):  # the reader of agents says what it is
        if not Path(source).is_dir() and not read_text(Path(source)).strip():
            return {}
    return {
        agent.name: (certificate, agent_chart(certificate, rules_of(agent)))
        for agent, certificate in issuer.certify_all(source)
    }
