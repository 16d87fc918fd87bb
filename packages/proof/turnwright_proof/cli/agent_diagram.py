"""The part of `turnwright diagram` that draws agents: printed, or as pages beside the agents."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from turnwright._base.regular_files import write_regular
from turnwright.agent import Agent
from turnwright.cli import codes
from turnwright.cli.options import choose_agent
from turnwright.cli.process import echo, words_of
from turnwright.errors import ConfigError
from turnwright_proof.certificates.agent_chart import NO_RULES, agent_chart
from turnwright_proof.certificates.agent_page import MARK, agent_page
from turnwright_proof.certificates.certificate import Certificate
from turnwright_proof.draw.files import read_text, stale_texts
from turnwright_states.rules import RuleList

from .certified import Issuer, rules_of
from .pictures import Format, picture_text, report_problems, report_written

if TYPE_CHECKING:
    from turnwright.config.config import Config


class AgentDrawing:
    """Draws agents under one configuration."""

    def __init__(self, config: "Config", tools: str | None, hooks: Sequence[str], *, synthesis: bool) -> None:
        self._config = config
        self._issuer = Issuer(config, tools, hooks)
        self._synthesis = synthesis
        #: The rules of agents, by their names.
        self._rules: dict[str, RuleList] = {}

    def certificates(self, source: str | None, name: str | None) -> dict[str, Certificate]:
        """Return the certificates of the named agent, or of all agents of the source, by the names of their pages."""
        if name is not None:
            agent, beside = choose_agent(name, source, self._config)
            self._rules[agent.name] = rules_of(agent)
            return {_page_name(agent): self._issuer.certificate(agent, beside)}
        certificates: dict[str, Certificate] = {}
        for source_agent, certificate in self._issuer.certify_all(
            *([source] if source else self._config.agent_sources())
        ):
            page = _page_name(source_agent)
            if page in certificates:
                earlier_agent = certificates[page].agent
                raise ConfigError(
                    f"agents {earlier_agent!r} and {source_agent.name!r} would have one page: rename one of them"
                )
            certificates[page] = certificate
            self._rules[source_agent.name] = rules_of(source_agent)
        return certificates

    def draw_agent(self, certificate: Certificate, form: Format) -> str:
        """Return the picture of an agent in a format."""
        chart = agent_chart(certificate, self._rules.get(certificate.agent, NO_RULES), synthesis=self._synthesis)
        return agent_page(certificate, chart) if form is Format.PAGE else picture_text(form, chart.picture)

    def print_agents(self, certificates: Mapping[str, Certificate], form: Format) -> str:
        """Return the picture of one agent, or the pages of all. Raises `ConfigError` for several in one picture."""
        if form is not Format.PAGE and len(certificates) > 1:
            names = ", ".join(certificate.agent for certificate in certificates.values())
            raise ConfigError(f"a picture in {form} shows one agent: choose one with --agent: {names}")
        return "\n".join(self.draw_agent(certificate, form) for certificate in certificates.values())

    def pages(self, certificates: Mapping[str, Certificate]) -> dict[str, str]:
        """Return the text of each page, by its file name."""
        return {f"{name}.md": self.draw_agent(certificate, Format.PAGE) for name, certificate in certificates.items()}


def _page_name(agent: Agent) -> str:
    """Return the name of an agent's page without its ending: small letters, since some file systems ignore case."""
    return agent.tool_name.lower() or re.sub(r"\W+", "_", agent.name.lower()).strip("_") or "agent"


def draw_agents(
    drawing: AgentDrawing,
    source: str | None,
    name: str | None,
    *,
    form: Format,
    write_to: Path | None,
    check: Path | None,
) -> None:
    """Print the picture of one agent, or of all as pages, or write the pages, or check them. Exits with 1 or 2."""
    text = ""
    try:
        certificates = drawing.certificates(source, name)
        if write_to is not None:
            _write(write_to, drawing.pages(certificates))
        elif check is not None:
            _check(check, drawing.pages(certificates), whole=name is None)
        else:
            text = drawing.print_agents(certificates, form)
    except (ConfigError, OSError) as error:
        echo(f"turnwright diagram: {words_of(error)}", err=True)
        raise typer.Exit(codes.USAGE) from None
    if text:
        echo(text.removesuffix("\n"))


def _write(directory: Path, pages: Mapping[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    names = stale_texts(directory, pages)
    for name in names:
        write_regular(directory / name, pages[name].encode())
    report_written(directory, names)


def _check(directory: Path, pages: Mapping[str, str], *, whole: bool) -> None:
    """List the pages that are missing or stale, and, if the file is drawn whole, those of agents that are gone."""
    problems = stale_texts(directory, pages)
    if whole and directory.is_dir():
        other_pages = sorted(path for path in directory.glob("*.md") if path.name not in pages)
        problems |= {path.name: "of no agent" for path in other_pages if (read_text(path) or "").startswith(MARK)}
    report_problems(directory, problems, f"the same command with --write {directory}; delete pages of no agent")
