"""The shape of the help: commands in groups, examples below each command, and five commands for a beginner."""

from functools import partial
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

#: The beginning of the name of each package beside the engine.
PACKAGE: Final = "turnwright-"
#: The commands by what they are for, in the order of the help. Each name comes with the module that defines it, or
#: with the package that adds it, and its extra.
GROUPS: Final = {
    "Run": {
        "demo": "demo",
        "run": "run",
        "chat": "chat",
        "resume": "run",
        "answer": "inbox",
        "settle": "inbox",
        "approvals": "sessions",
        "steer": "inbox",
        "abort": "inbox",
        "fork": "fork",
    },
    "Inspect": {
        "turns": "turns",
        "sessions": "sessions",
        "show": "show",
        "serve": f"{PACKAGE}inspector",
        "export": f"{PACKAGE}audit",
        "explain": f"{PACKAGE}proof",
        "config": "config",
        "agents": "agents",
        "diagram": f"{PACKAGE}proof",
    },
    "Check": {
        "audit": f"{PACKAGE}audit",
        "verify": f"{PACKAGE}proof",
        "fuzz": f"{PACKAGE}testing",
        "replay": "replay",
        "decode": "decode",
    },
    "Operate": {
        "worker": "worker",
        "mcp": "mcp",
        "mcp serve": f"{PACKAGE}protocols[mcp]",
        "acp": f"{PACKAGE}protocols[acp]",
        "annotate": "annotate",
        "title": "sessions",
        "delete": "upkeep",
        "prune": "upkeep",
        "outbox": "upkeep",
        "migrate": "upkeep",
    },
}

#: The first sentence of each command's help, as a copy: the list of commands then loads none of them.
SUMMARIES: Final = {
    "demo": "Show four turns that could have gone wrong.",
    "run": "Run one turn, and print how it ended.",
    "chat": "Talk with an agent in the terminal.",
    "resume": "Continue a turn: answer it, or resume it after a crash.",
    "answer": "Answer a paused turn, and leave it to its driver.",
    "settle": "Give the result of a call that waits for it, or that a crash left open.",
    "approvals": "List the approvals of a session that cover equal calls, or revoke them.",
    "steer": "Send a message to a running turn.",
    "abort": "End a paused turn, or stop a running one.",
    "fork": "Continue from an earlier point of a turn, in a new turn.",
    "turns": "List turns, newest first, and those to resume.",
    "sessions": "List sessions, those with the newest turns first.",
    "show": "Show a turn: its transcript, its state, and why it ended.",
    "serve": "Serve the inspector: turns as pages in a browser.",
    "export": "Write a turn in the format of other tools, or for another inspector.",
    "explain": "Print every limit of an agent's turns, and who set it.",
    "config": "Print every setting, its value and its source.",
    "agents": "List agents with their limits.",
    "diagram": "Draw the chart of states, or the path of a turn in it.",
    "audit": "Audit recorded runs of any agent: their endings, their loops, and the limits that would have helped.",
    "verify": "Check the chart, and every path of a turn in small bounds.",
    "fuzz": "Play random turns with your agents and tools, and check them.",
    "replay": "Check a recorded turn against the chart.",
    "decode": "Decode recorded streams of model providers.",
    "worker": "Drive turns that other processes submit.",
    "mcp": "Log in at an MCP server, or out.",
    "mcp serve": "Serve agents as the tools of an MCP server.",
    "acp": "Serve agents to an editor that speaks the Agent Client Protocol.",
    "annotate": "Tag, score or note a turn, and list what it has.",
    "title": "Set the title of a session.",
    "delete": "Delete a turn and its sub-turns, or all of a session.",
    "prune": "Delete the turns that ended long ago, and their sub-turns.",
    "outbox": "List the notices that wait for their subscribers, and those that failed.",
    "migrate": "Update a store to the schema of this release.",
}

#: Five commands for a beginner, and what each is for.
FIRST_STEPS: Final = {
    "demo": "See a limit, a loop, an approval, a crash.",
    'run "PROMPT"': "Run one turn.",
    "chat": "Talk with an agent.",
    "show TURN": "Show a turn, and why it ended.",
    "serve": "Open the inspector in a browser.",
}

#: A terminal with fewer columns has a layout of its own.
_NARROW: Final = 60
#: The examples in the help of each command, as people type them.
EXAMPLES: Final = {
    "demo": ["turnwright demo", "turnwright demo audit", "turnwright demo --serve"],
    "run": [
        'turnwright run "What does this folder contain?"',
        'turnwright run "Fix the tests" --tools tools.py --steps 20',
        'turnwright run "Summarize" --file report.pdf --model gpt-5-mini',
        'turnwright run --continue 4f2c "Go on"',
        'git diff | turnwright run --json | jq -r "select(.text).text"',
    ],
    "chat": ["turnwright chat", "turnwright chat --agents AGENTS.md --tools tools.py", "turnwright chat --continue"],
    "resume": [
        "turnwright resume 4f2c",
        "turnwright resume 4f2c --approve approval-1",
        'turnwright resume 4f2c --reject approval-1="Use the test database"',
    ],
    "answer": ["turnwright answer 4f2c --approve approval-1", 'turnwright answer 4f2c --answer question-1="blue"'],
    "settle": [
        'turnwright settle 4f2c:call00001 --result "film.mp4"',
        'turnwright settle 4f2c:call00001 --error "the farm is closed" --by farm',
    ],
    "approvals": ["turnwright approvals s1", "turnwright approvals s1 --revoke"],
    "steer": ['turnwright steer 4f2c "Leave the tests alone."'],
    "abort": ["turnwright abort 4f2c"],
    "fork": ["turnwright fork 4f2c", "turnwright fork 4f2c --at 12"],
    "turns": [
        "turnwright turns",
        "turnwright turns --session s1 --limit 10",
        "turnwright turns --store sqlite:///old.db",
    ],
    "sessions": ["turnwright sessions", "turnwright sessions --limit 10 --json"],
    "show": [
        "turnwright show 4f2c",
        "turnwright show --session s1",
        "turnwright show 4f2c --journal",
        "turnwright show 4f2c --as-test > test_4f2c.py",
    ],
    "serve": [
        "turnwright serve",
        "turnwright serve --drive --model gpt-5-mini",
        "turnwright serve --runs ~/.claude/projects",
    ],
    "export": ["turnwright export 4f2c --output run.json", "turnwright export 4f2c | jq .final_metrics"],
    "explain": ["turnwright explain --agents desk:DESK", "turnwright explain --steps 5 --json"],
    "config": ["turnwright config", "turnwright config --agent Coder"],
    "agents": ["turnwright agents", "turnwright agents desk.py", "turnwright agents --diff before.md AGENTS.md"],
    "diagram": [
        "turnwright diagram --view overview > overview.svg",
        "turnwright diagram --turn 4f2c",
        "turnwright diagram --agents AGENTS.md --write docs/agents",
    ],
    "audit": [
        "turnwright audit ~/.claude/projects",
        "turnwright audit runs.tar.gz --outcomes solved.csv",
        "turnwright audit runs --fail-on 'loops>1%,unpaired>0'",
        "turnwright audit --strict turns.jsonl",
    ],
    "verify": ["turnwright verify", "turnwright verify --can-reach cap_hit/budget --with steps=4 --with PAUSED"],
    "fuzz": ["turnwright fuzz --agents desk.py:DESK", "turnwright fuzz --agents AGENTS.md --tools tools.py"],
    "replay": ["turnwright replay 4f2c", "turnwright replay journal.jsonl"],
    "decode": ["turnwright decode --api openai-chat body.txt"],
    "worker": [
        "turnwright worker --model gpt-5-mini --tools tools.py",
        "turnwright worker --store postgresql://host/db --concurrency 50",
    ],
    "mcp": ["turnwright mcp login linear --mcp mcp.json", "turnwright mcp logout linear --mcp mcp.json"],
    "mcp serve": ["turnwright mcp serve --agents AGENTS.md --tools tools.py"],
    "annotate": ["turnwright annotate 4f2c --score success=1 --tag slow", "turnwright annotate 4f2c"],
    "title": ['turnwright title s1 "Tests of the parser"'],
    "delete": ["turnwright delete 4f2c", "turnwright delete --session s1"],
    "prune": ["turnwright prune --older-than 30d"],
    "outbox": ["turnwright outbox", "turnwright outbox --retry", "turnwright outbox --remove chat"],
    "acp": ["turnwright acp --agents AGENTS.md"],
    "migrate": ["turnwright migrate --store sqlite:///turns.db"],
}


def first_steps(columns: int) -> str:
    """Return the text of `turnwright` without arguments. A narrow terminal has each explanation below its command."""
    rows = [(f"  turnwright {name:<12}", text) for name, text in FIRST_STEPS.items()]
    if all(len(f"{command}  {text}") <= columns for command, text in rows):
        lines = [f"{command}  {text}" for command, text in rows]
    else:
        lines = [line for command, text in rows for line in (command.rstrip(), *_indent(text, columns))]
    return "\n".join(["Usage: turnwright COMMAND [ARGS]...", "", *lines, "", "All commands: turnwright --help"])


def _indent(text: str, columns: int) -> list[str]:
    return wrap(text, max(columns, 20), initial_indent="    ", subsequent_indent="    ", break_long_words=False)


class GroupedCommands(TyperGroup):
    """The top-level help, with the commands in groups.

    The types of click's own classes are `Any`: which package defines them depends on the release of Typer.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 (see above)
        _fit(formatter)
        super().format_help(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 (click's signature)
        widest = max(map(len, SUMMARIES))
        for group, names in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(f"{name:<{widest}}", SUMMARIES[name]) for name in names])


class CommandWithExamples(TyperCommand):
    """A command whose epilog has one example per line. They are not wrapped."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401 (see above)
        hidden_params = [param for param in self.get_params(ctx) if getattr(param, "hidden", False)]
        left_out = {piece for param in hidden_params for piece in param.get_usage_pieces(ctx)}
        return [piece for piece in super().collect_usage_pieces(ctx) if piece not in left_out]

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 (see above)
        _fit(formatter)
        super().format_help(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 (click's signature)
        if self.epilog:
            with formatter.section("Examples"):
                for line in self.epilog.splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def _fit(formatter: Any) -> None:  # noqa: ANN401 (see above)
    """Fit the help to a narrow terminal: click's own least width is 50, with options in a column of 30."""
    columns = get_terminal_size().columns
    if columns < _NARROW:
        formatter.width = max(columns - 1, 1)
        formatter.write_dl = partial(formatter.write_dl, col_max=10, col_spacing=1)
