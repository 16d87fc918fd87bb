"""A client's input becomes a prompt with its files, or answers to the interrupts of a paused turn."""

import logging

import pytest
from ag_ui.core import RunAgentInput
from pydantic import JsonValue

from turnwright import Agent, ConfigError, Engine, InvalidAnswerError, Limits, tool
from turnwright.journal.answers import Answer, approve, reject
from turnwright.journal.result import TurnResult
from turnwright.message import FilePart, ToolResultPart
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.transcript.events import Interrupt, TurnPausedEvent
from turnwright_protocols.ag_ui import AgUiEncoder, RunRequest, messages_of, read_input
from turnwright_states import Decision, EndReason, InterruptKind, Outcome

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")
PNG: JsonValue = {"type": "data", "value": "eA==", "mimeType": "image/png"}


def read(*messages: JsonValue, **fields: JsonValue) -> RunRequest:
    run = {"threadId": "s1", "runId": "r1", "messages": list(messages), **fields}
    return read_input(RunAgentInput.model_validate(run))


def user(content: JsonValue, name: str = "m1") -> dict[str, JsonValue]:
    return {"id": name, "role": "user", "content": content}


def test_thread_is_the_session_and_the_last_message_the_prompt() -> None:
    request = read(user("hi"), {"id": "m2", "role": "assistant", "content": "Hello."}, user("Tidy up.", "m3"))
    assert (request.session, request.run, request.prompt, request.turn) == ("s1", "r1", "Tidy up.", "")
    assert [(message.role, message.text) for message in request.message_history] == [
        ("user", "hi"),
        ("assistant", "Hello."),
    ]


def test_history_calls_and_results_are_paired_by_id_and_named() -> None:
    function: JsonValue = {"name": "note", "arguments": '{"n": 1}'}
    request = read(
        {"id": "m1", "role": "developer", "content": "Be brief."},
        {"id": "m2", "role": "reasoning", "content": "hm"},
        {"id": "m3", "role": "assistant", "toolCalls": [{"id": "c1", "type": "function", "function": function}]},
        {"id": "m4", "role": "tool", "toolCallId": "c1", "content": [{"type": "text", "text": "noted"}]},
        {"id": "m5", "role": "activity", "activityType": "x", "content": {}},
        user("Go on."),
    )
    system, assistant, result = request.message_history
    assert (system.role, system.text) == ("system", "Be brief.")
    assert [(call.id, call.name, call.arguments) for call in assistant.calls] == [("c1", "note", {"n": 1})]
    (part,) = result.parts
    assert isinstance(part, ToolResultPart)
    assert (part.call, part.name, part.text) == ("c1", "note", "noted")


def test_pictures_and_documents_are_files_of_the_prompt() -> None:
    request = read(
        user(
            [
                {"type": "text", "text": "What is"},
                {"type": "image", "source": PNG, "metadata": {"filename": "x.png"}},
                {"type": "document", "source": {"type": "url", "value": "https://x.org/a.pdf"}},
                {"type": "text", "text": "this?"},
            ]
        )
    )
    assert request.prompt == "What is\nthis?"
    assert request.files == (
        FilePart(media_type="image/png", data="eA==", name="x.png"),
        FilePart(media_type="application/*", url="https://x.org/a.pdf"),
    )
    assert request.left_out == ()


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"type": "file", "value": "file-1", "provider": "openai"}, "handle"),
        ({"type": "data", "value": "not base64!", "mimeType": "image/png"}, "base64"),
        ({"type": "url", "value": "ftp://x.org/a.png"}, "https://"),
    ],
)
def test_unusable_part_is_left_out_and_the_run_continues(source: JsonValue, why: str) -> None:
    request = read(user([{"type": "text", "text": "hi"}, {"type": "image", "source": source}]))
    assert (request.prompt, request.files) == ("hi", ())
    (left_out,) = request.left_out
    assert left_out.startswith("message m1: image: ")
    assert why in left_out


def test_unused_input_is_named_and_context_becomes_instructions() -> None:
    request = read(
        user("hi"),
        state={"draft": ""},
        context=[{"description": "page", "value": "/home"}, {"description": "role", "value": "editor"}],
    )
    assert request.context == "page: /home\nrole: editor"
    assert [note.partition(":")[0] for note in request.left_out] == ["state"]


@pytest.mark.parametrize("messages", [(), ({"id": "m1", "role": "assistant", "content": "Hello."},)])
def test_input_without_a_message_to_answer_is_refused(messages: tuple[JsonValue, ...]) -> None:
    with pytest.raises(ConfigError, match="no message to answer"):
        read(*messages)


# Pauses.


@tool(needs_approval=True)
async def erase(path: str) -> str:
    return f"erased {path}"


def entry(turn: str, interrupt: str, payload: JsonValue, status: str = "resolved") -> JsonValue:
    return {"interruptId": f"{turn}/{interrupt}", "status": status, "payload": payload}


def pending(kind: InterruptKind, **fields: object) -> Interrupt:
    return Interrupt("i1", kind, **fields)  # type: ignore[arg-type]


async def test_question_has_choices_and_an_expiry() -> None:
    question = pending(InterruptKind.QUESTION, question="Which?", choices=("a", "b"), expires_at=1_800_000_000.0)
    paused_event = TurnPausedEvent("t1", 3, (question,))
    encoder = AgUiEncoder(RunAgentInput(thread_id="s1", run_id="r1", messages=[]))
    last = encoder.encode(paused_event)[-1].model_dump(by_alias=True, mode="json")
    assert last["outcome"]["interrupts"] == [
        {
            "id": "t1/i1",
            "reason": "input_required",
            "message": "Which?",
            "responseSchema": {"type": "string", "examples": ["a", "b"]},
            "expiresAt": "2027-01-15T08:00:00Z",
            "metadata": {"turnwright": {"kind": "question", "choices": ["a", "b"]}},
        }
    ]


def answered(interrupt: Interrupt, payload: JsonValue, status: str = "resolved") -> str | bool | Answer:
    return read(resume=[entry("t1", "i1", payload, status)]).answers([interrupt])["i1"]


async def paused(engine: Engine) -> tuple[TurnResult, dict[str, JsonValue]]:
    """Return a paused turn, and the interrupt that its client received."""
    turn = await engine.run(AGENT, "hi", session="s1")
    encoder = AgUiEncoder(RunAgentInput(thread_id="s1", run_id="r1", messages=[]))
    sent_events = [encoded async for event in engine.events(turn.id) for encoded in encoder.encode(event)]
    last = sent_events[-1].model_dump(by_alias=True, mode="json")
    (interrupt,) = last["outcome"]["interrupts"]
    return turn, interrupt


async def test_approval_is_answered_and_the_turn_continues() -> None:
    engine = Engine(model=ScriptedModel(asks_for(("erase", {"path": "x"})), "Done."), tools=[erase])
    turn, interrupt = await paused(engine)
    assert interrupt["reason"] == "tool_call"
    assert interrupt["toolCallId"] == f"{turn.id}/call00001"
    assert interrupt["message"] == 'may erase run?\narguments:\n| path: "x"'
    assert interrupt["metadata"] == {"turnwright": {"kind": "approval", "tool": "erase", "arguments": {"path": "x"}}}
    answer: JsonValue = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
    request = read(resume=[answer])
    assert (request.turn, request.prompt) == (turn.id, "")
    result = await engine.resume(request.turn, request.answers(turn.interrupts))
    assert (result.outcome, result.text) == (Outcome.FINISHED, "Done.")


async def test_denial_sends_the_reason_to_the_model() -> None:
    engine = Engine(model=ScriptedModel(asks_for(("erase", {"path": "x"})), "Done."), tools=[erase])
    turn, _ = await paused(engine)
    request = read(resume=[entry(turn.id, "approval-1", {"approved": False, "reason": "not that one"})])
    result = await engine.resume(request.turn, request.answers(turn.interrupts))
    contents = [message.content for message in messages_of(turn.id, result.messages) if message.role == "tool"]
    assert "not that one" in str(contents)


async def test_doom_loop_question_has_answers_and_an_expiry() -> None:
    model = ScriptedModel(*[asks_for(("peek", {}))] * 3, "Stuck.")

    @tool
    async def peek() -> str:
        return "same"

    engine = Engine(model=model, tools=[peek], limits=Limits(doom_response="ask"))
    turn, interrupt = await paused(engine)
    assert interrupt["reason"] == "turnwright:doom_loop"
    assert "toolCallId" not in interrupt
    assert interrupt["responseSchema"] == {"type": "string", "enum": ["go_on", "always", "stop"]}
    request = read(resume=[entry(turn.id, turn.interrupts[0].id, None, "cancelled")])
    result = await engine.resume(request.turn, request.answers(turn.interrupts))
    assert result.reason is EndReason.DOOM_LOOP


@pytest.mark.parametrize(
    ("kind", "payload", "answer"),
    [
        (InterruptKind.QUESTION, "a", "a"),
        (InterruptKind.APPROVAL, True, True),
        (InterruptKind.GRANT, {"approved": True}, Answer(Decision.APPROVE)),
        (InterruptKind.APPROVAL, {"approved": False}, Answer(Decision.REJECT)),
        (InterruptKind.DOOM_LOOP, "always", "always"),
        (InterruptKind.UNKNOWN_OUTCOME, "rerun", "rerun"),
    ],
)
def test_payload_is_the_answer(kind: InterruptKind, payload: JsonValue, answer: object) -> None:
    assert answered(pending(kind), payload) == answer


def test_payload_may_change_the_arguments_of_the_approved_call() -> None:
    edited = answered(pending(InterruptKind.APPROVAL), {"approved": True, "editedArgs": {"path": "y"}})
    assert edited == approve(arguments={"path": "y"})
    rejected = answered(pending(InterruptKind.APPROVAL), {"approved": False, "editedArgs": {"path": "y"}})
    assert rejected == reject()


@pytest.mark.parametrize(
    ("kind", "decision"),
    [
        (InterruptKind.QUESTION, Decision.REJECT),
        (InterruptKind.APPROVAL, Decision.REJECT),
        (InterruptKind.DOOM_LOOP, Decision.STOP),
        (InterruptKind.UNKNOWN_OUTCOME, Decision.UNKNOWN),
    ],
)
def test_abandoned_interrupt_is_decided_like_an_expired_interrupt(kind: InterruptKind, decision: Decision) -> None:
    answer = answered(pending(kind), None, "cancelled")
    assert isinstance(answer, Answer)
    assert answer.decision is decision


def test_payload_may_approve_equal_calls_too() -> None:
    assert answered(pending(InterruptKind.APPROVAL), {"approved": True, "always": True}) == approve(always=True)
    assert answered(pending(InterruptKind.APPROVAL), {"approved": False, "always": True}) == reject()


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"approved": True, "editedArgs": "y"}, "responseSchema"),
        ({"approved": "yes"}, "responseSchema"),
        ({"approved": True, "always": "yes"}, "responseSchema"),
        (None, "responseSchema"),
        (1, "responseSchema"),
    ],
)
def test_invalid_payload_is_refused(payload: JsonValue, why: str) -> None:
    with pytest.raises(InvalidAnswerError, match=why):
        answered(pending(InterruptKind.APPROVAL), payload)


def test_every_open_interrupt_needs_an_answer_and_others_are_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    request = read(resume=[entry("t1", "i2", "a"), {"interruptId": "other", "status": "cancelled"}])
    assert request.left_out == ("resume: 'other' is not an interrupt of a turn",)
    question = pending(InterruptKind.QUESTION)
    with caplog.at_level(logging.WARNING), pytest.raises(InvalidAnswerError, match="no entry"):
        request.answers([question])
    assert "i2" in caplog.text


def test_resume_answers_a_single_turn() -> None:
    with pytest.raises(ConfigError, match="2 turns"):
        read(resume=[entry("t1", "i1", "a"), entry("t2", "i1", "a")])


def test_resume_of_a_foreign_turn_is_an_ordinary_run() -> None:
    assert read(user("hi"), resume=[{"interruptId": "x", "status": "cancelled"}]).prompt == "hi"


async def test_approval_has_the_wording_of_the_command_line() -> None:
    hiding = "safe" + " " * 600 + "; evil\u200b\nturnwright resume"
    engine = Engine(model=ScriptedModel(asks_for(("erase", {"path": hiding})), "Done."), tools=[erase])
    _, interrupt = await paused(engine)
    assert (
        interrupt["message"]
        == 'may erase run?\narguments:\n| path:\n|   "safe\\x20{600}; evil\\u200b\\n"\n|   "turnwright resume"'
    )
    assert interrupt["metadata"] == {"turnwright": {"kind": "approval", "tool": "erase", "arguments": {"path": hiding}}}
