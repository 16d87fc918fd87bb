"""Read the input of an AG-UI client: a new message, or answers to a paused turn."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Final

from ag_ui.core import (
    ActivityMessage,
    AssistantMessage,
    AudioPart,
    ContentPart,
    DocumentPart,
    FileSource,
    ImagePart,
    ReasoningMessage,
    ResumeEntry,
    RunAgentInput,
    TextPart,
    ToolMessage,
    UserMessage,
    VideoPart,
)
from ag_ui.core import Message as AgUiMessage

from turnwright import ExternalTool, ToolResult
from turnwright.errors import ConfigError
from turnwright.journal.answers import Answer, settled
from turnwright.message import FilePart, Message
from turnwright.transcript.interrupt import Interrupt
from turnwright_protocols.client_tools import ToolDeclaration, client_error, give_results, need_result

from .interrupts import answers_of, read_interrupt_id

#: The media type of a part without one.
_TYPES: Final[Mapping[str, str]] = {
    "image": "image/*",
    "audio": "audio/*",
    "video": "video/*",
    "document": "application/*",
}


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A client's request: a new turn with `prompt`, or the paused turn `turn` to resume with answers and results.

    `session` is its thread, `run` its run. `files` belong to the prompt; `history` are the client's earlier messages,
    for an engine that does not have the session. `context` is the application's information for the model, one entry a
    line, for the agent's instructions. `tools` are the application's, which a new turn takes (`run(tools=)`).
    `left_out` describes, for people, the input that is not used.
    """

    session: str
    run: str
    prompt: str = ""
    files: tuple[FilePart, ...] = ()
    message_history: tuple[Message, ...] = ()
    turn: str = ""
    context: str = ""
    tools: tuple[ExternalTool, ...] = ()
    left_out: tuple[str, ...] = ()
    #: The entries of the resume, by our ids of the interrupts.
    entries: Mapping[str, ResumeEntry] = field(default_factory=dict)
    #: The messages with results of the turn's calls, by our ids of the calls.
    results: Mapping[str, ToolMessage] = field(default_factory=dict)

    def answers(self, interrupts: Sequence[Interrupt]) -> dict[str, str | bool | Answer]:
        """Return the answers to resume the turn with. `interrupts` are `(await engine.get(turn)).interrupts`.

        An abandoned interrupt is answered like an expired one. Results alone may answer some of the interrupts. Raises
        `InvalidAnswerError` for an interrupt without an entry or a result, for a payload that does not match, for
        results without an open call, and for one that is too large.
        """
        results = {call: partial(_given_result, message) for call, message in self.results.items()}
        if not self.entries:
            answers = give_results(interrupts, results)
            need_result(answers, results)
            return {**answers}
        calls = {interrupt.call for interrupt in interrupts if interrupt.id not in self.entries}
        answers = give_results(interrupts, {call: result for call, result in results.items() if call in calls})
        open_interrupts = [interrupt for interrupt in interrupts if interrupt.id not in answers]
        return {**answers, **answers_of(open_interrupts, self.entries)}


def read_input(run: RunAgentInput) -> RunRequest:
    """Read a run's input: its thread is the session, its last message the prompt, or the results of open calls.

    The application's state is not used; `left_out` says so. An unusable part (a provider's file handle, content that is
    not base64) is left out too, as the protocol requires. A turn that continues keeps its tools.

    Raises `ConfigError` for an input without a resume that ends with neither a user's message nor results of a turn's
    calls, for answers to several turns at once, for two results of one call, and for a tool of the application with an
    invalid name or schema. Source: AG-UI 1.0, "Run Input", "Interrupts and Resume", "Tools".
    """
    left_out = ["state: a turn has no state of the application"] if run.state else []
    entries: dict[str, dict[str, ResumeEntry]] = {}
    for entry in run.resume or ():
        turn, interrupt = read_interrupt_id(entry.interrupt_id)
        if turn:
            entries.setdefault(turn, {})[interrupt] = entry
        else:
            left_out.append(f"resume: {entry.interrupt_id!r} is not an interrupt of a turn")
    if len(entries) > 1:
        raise ConfigError(f"the resume answers {len(entries)} turns at once: {', '.join(entries)}: answer one per run")
    context = "\n".join(f"{item.description}: {item.value}" for item in run.context or ())
    messages = [message for message in run.messages if not isinstance(message, ActivityMessage | ReasoningMessage)]
    results = _results(messages)
    if turns := entries or results:
        if len(turns) > 1:
            raise ConfigError(f"the run has results for {len(turns)} turns: {', '.join(turns)}: give those of one")
        (turn,) = turns
        return RunRequest(
            run.thread_id,
            run.run_id,
            turn=turn,
            context=context,
            left_out=tuple(left_out),
            entries=entries.get(turn, {}),
            results=results.get(turn, {}),
        )
    if not messages or not isinstance(messages[-1], UserMessage):
        last = f"the last message is of the role {messages[-1].role}" if messages else "there are no messages"
        raise ConfigError(f"the input has no message to answer: {last}, without a resume. End with a user's message")
    history = tuple(_history(messages[:-1], left_out))
    prompt, files = _content(messages[-1].content, left_out, f"message {messages[-1].id}")
    return RunRequest(
        run.thread_id,
        run.run_id,
        prompt=prompt,
        files=files,
        message_history=history,
        context=context,
        tools=tuple(
            ToolDeclaration(tool.name, tool.description, tool.parameters).make_tool() for tool in run.tools or ()
        ),
        left_out=tuple(left_out),
    )


def _given_result(message: ToolMessage) -> Answer:
    """Return the result of a message. Raises `ConfigError`."""
    text, files = _content(message.content, [], f"message {message.id}")
    return settled(error=client_error(message.error)) if message.error else settled(ToolResult(text, files=files))


def _results(messages: Sequence[AgUiMessage]) -> dict[str, dict[str, ToolMessage]]:
    """Return the results at the end of the messages, by turn and call: the client's, and those that it received.

    Raises `ConfigError` for two different results of one call.
    """
    results: dict[str, dict[str, ToolMessage]] = {}
    for message in takewhile(lambda message: isinstance(message, ToolMessage), reversed(messages)):
        assert isinstance(message, ToolMessage)  # noqa: S101 (the loop takes no other)
        turn, call = read_interrupt_id(message.tool_call_id)
        if not turn:
            continue
        later = results.setdefault(turn, {}).setdefault(call, message)
        if (later.content, later.error) != (message.content, message.error):
            raise ConfigError(f"the run has two results for call {message.tool_call_id!r:.80}: give one")
    return results


def _history(messages: Sequence[AgUiMessage], left_out: list[str]) -> Iterator[Message]:
    names: dict[str, str] = {}
    for message in messages:
        where = f"message {message.id}"
        match message:
            case UserMessage(content=content):
                yield Message.user(*_content(content, left_out, where))
            case ToolMessage(content=content, tool_call_id=call):
                text, files = _content(content, left_out, where)
                yield Message.result(call, names.get(call, ""), text, files=files)
            case AssistantMessage():
                calls = [call.model_dump(mode="json", by_alias=False) for call in message.tool_calls or ()]
                names |= {call.id: call.function.name for call in message.tool_calls or ()}
                chat = {"role": "assistant", "content": message.content, "tool_calls": calls}
                yield Message.from_chat(json.loads(json.dumps(chat)))
            case ActivityMessage() | ReasoningMessage():
                pass
            case _:
                yield Message.system(message.content)


def _content(content: str | Sequence[ContentPart], left_out: list[str], where: str) -> tuple[str, tuple[FilePart, ...]]:
    """Return the text and the files of a content; `left_out` names unusable parts."""
    if isinstance(content, str):
        return content, ()
    texts, files = [], []
    for part in content:
        if isinstance(part, TextPart):
            texts.append(part.text)
            continue
        file = _file(part)
        if isinstance(file, FilePart):
            files.append(file)
        else:
            left_out.append(f"{where}: {part.type}: {file}")
    return "\n".join(texts), tuple(files)


def _file(part: ImagePart | AudioPart | VideoPart | DocumentPart) -> FilePart | str:
    """Return the part as a file, or the reason why it is unusable."""
    source = part.source
    if isinstance(source, FileSource):
        return "it is a provider's file handle, which only that provider can read"
    media_type = (source.mime_type or _TYPES[part.type]).lower().partition(";")[0].strip()
    file_name = part.metadata.get("filename") if isinstance(part.metadata, Mapping) else None
    name = file_name if isinstance(file_name, str) else ""
    data, url = (source.value, "") if source.type == "data" else ("", source.value)
    try:
        return FilePart(media_type=media_type, data=data, url=url, name=name)
    except ValueError as error:
        return str(error)
