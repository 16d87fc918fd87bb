"""Reads the `.traj` files of SWE-agent.

Each item of `trajectory` is a reply, its command and the observation: a call of a tool is written as a command, too.
`history` has the messages with the prompt. A demonstration may be a file that has only a history.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from turnwright_audit.trajectories.atif import StepMetrics, Trajectory, TrajectoryCall, TrajectoryStep
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.shapes import Shape, read_json
from turnwright_audit.trajectories.source import Recording
from turnwright_audit.trajectories.values import Values

from .chat_messages import Message, read_chat_reply, text_of
from .model_replies import add_reply

NAME: Final = "swe-agent"
_TERMINAL: Final = ["submit", "exit_forfeit"]
#: Actions that the agent writes itself when a request to the model fails or a limit is reached.
_EXITS: Final = frozenset({"exit_api", "exit_context", "exit_cost", "exit_error", "exit_format"})
_EXIT_TEXT: Final = "Exit due to "
#: Commands of the agent's own tools. Any other command is one of bash.
_COMMANDS: Final = {
    *("create", "edit", "exit_forfeit", "filemap", "find_file", "goto", "insert", "open", "scroll_down", "scroll_up"),
    *("search_dir", "search_file", "str_replace_editor", "submit", "undo_edit", "view_image"),
}


class TrajectoryItem(Struct):
    """A reply with its command and the result."""

    action: str | None = None
    observation: str | None = None
    response: str | None = None
    thought: str | None = None


class HistoryMessage(Message):
    """A message of the history."""

    action: str | None = None
    thought: str | None = None
    is_demo: bool = False
    tool_call_ids: list[str] | None = None


class ModelStats(Struct):
    """Sums of a run."""

    instance_cost: float | None = None
    tokens_sent: int | None = None
    tokens_received: int | None = None


class Info(Struct):
    """The end and the sums of a run."""

    exit_status: str | None = None
    model_stats: ModelStats | None = None


class Attempt(Struct):
    """A run."""

    trajectory: list[TrajectoryItem] | None = None
    history: list[HistoryMessage] | None = None
    info: Info | None = None
    replay_config: Any = None


class Document(Attempt):
    """A whole file. It repeats the best of its attempts, if it has several."""

    attempts: list[Attempt] | None = None


_SHAPE: Final = Shape(Document)


def recognizes(recording: Recording) -> bool:
    """Whether the document has replies with commands, or a history whose messages name their agents."""
    first = recording.document
    if not isinstance(first, Mapping):
        return False
    items, messages = first.get("trajectory"), first.get("history")
    if isinstance(items, list) and items:
        first = items[0]
        return isinstance(first, Mapping) and "action" in first and ("response" in first or "observation" in first)
    message = messages[0] if isinstance(messages, list) and messages else None
    return isinstance(message, Mapping) and "role" in message and ("agent" in message or "message_type" in message)


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield each run."""
    values = Values(recording, _SHAPE, {"trajectory", "history", "attempts"})
    return values.noted(_runs(values), "no run in it could be read")


def _runs(values: Values[Document]) -> Iterator[Trajectory]:
    for document in values:
        several = len(document.attempts or ()) > 1
        for number, attempt in enumerate(document.attempts or [document], 1):
            yield _run(attempt, f"attempt {number}" if several else None)


def _run(attempt: Attempt, name: str | None) -> Trajectory:
    run = RunBuilder(NAME, agent=NAME, model=_model(attempt.replay_config), run=name)
    run.notes.terminal_tools = _TERMINAL
    history = [message for message in attempt.history or () if not message.is_demo]
    info = attempt.info or Info()
    if attempt.trajectory:
        _add_prompt(run, history)
        _add_items(run, attempt.trajectory)
    else:
        _add_history(run, history)
    return run.finish(ending=info.exit_status, totals=_totals(info.model_stats))


def _add_prompt(run: RunBuilder, history: list[HistoryMessage]) -> None:
    has_user_message = False
    for message in history:
        if message.role == "assistant":
            break
        if message.role == "user":
            run.user(text_of(message.content))
            has_user_message = True
        else:
            run.system(text_of(message.content))
    if not has_user_message:
        run.user("")


def _add_items(run: RunBuilder, items: list[TrajectoryItem]) -> None:
    for item in items:
        action = item.action or ""
        text = item.response or item.thought or ""
        if action.strip() in _EXITS or (not action and text.startswith(_EXIT_TEXT)):
            run.system(text or action, error=True)
            continue
        call = _add_command(run, run.reply(text), action)
        if call is not None and item.observation is not None:
            run.result(call.tool_call_id, item.observation)


def _add_history(run: RunBuilder, history: list[HistoryMessage]) -> None:
    for message in history:
        text = text_of(message.content)
        if message.role == "assistant":
            step = add_reply(run, read_chat_reply(message))
            if not message.tool_calls:
                _add_command(run, step, message.action or "")
        elif message.role == "tool" or (message.role == "user" and run.open_calls):
            for call_id in message.tool_call_ids or (message.tool_call_id,):
                run.result(call_id, text)
        elif message.role == "user":
            run.user(text)
        elif message.role:
            run.system(text)


def _add_command(run: RunBuilder, step: TrajectoryStep, action: str) -> TrajectoryCall | None:
    word = action.split(maxsplit=1)[:1]
    if not word:
        return None
    return run.call(None, word[0] if word[0] in _COMMANDS else "bash", {"command": action}, step=step)


def _totals(stats: ModelStats | None) -> StepMetrics | None:
    """Return the sums; None of a replay, whose sums are zero."""
    if stats is None or not (stats.tokens_sent or stats.tokens_received or stats.instance_cost):
        return None
    return StepMetrics(stats.tokens_sent, stats.tokens_received, cost_usd=stats.instance_cost)


def _model(config: object) -> str | None:
    """Return the name of the model in a configuration, which newer versions write as a text of JSON."""
    if isinstance(config, str):
        config = read_json(config)
    for key in ("agent", "model", "name"):
        config = config.get(key) if isinstance(config, Mapping) else None
    return config if isinstance(config, str) else None
