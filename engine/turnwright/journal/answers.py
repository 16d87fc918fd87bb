"""A person's answers to the open interrupts of a turn: checked, then posted to its inbox."""

import json
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Final, Self, TypedDict, cast, overload

from msgspec import to_builtins
from pydantic import JsonValue

from turnwright._base.frozen import MOST_NESTED, deeper_than, unique_keys
from turnwright._base.ids import root_of
from turnwright._base.words import explain_json_error
from turnwright.agent import Agent
from turnwright.context import NOT_GIVEN, JsonObject, NotGiven
from turnwright.errors import ConfigError, InvalidAnswerError, TurnAlreadyEndedError, need_kind
from turnwright.store import QUEUED, InboxItem, InboxKind, Store
from turnwright.tools.errors import ToolError
from turnwright.tools.later import find_misfit, give_result
from turnwright.tools.result import ToolResult
from turnwright.tools.tool import Tool
from turnwright.transcript.interrupt import Interrupt
from turnwright.transcript.wording import is_withheld
from turnwright_states import DECISIONS, Decision, EndReason, InterruptKind, Outcome
from turnwright_states.facts import Answered, InterruptRecord
from turnwright_states.inputs import GivenResult
from turnwright_states.payload import freeze, plain, thaw

from .inbox import ANSWER_PREFIX, answers_in, is_same_answer, steers, with_inbox, writable
from .result import TurnResult, result_of
from .turn_journal import JournalFold

#: The decisions that an answer may have. None of them brings a result.
ANSWERABLE: Final[Mapping[InterruptKind, tuple[Decision, ...]]] = {
    kind: tuple(decision for decision in decisions if decision is not Decision.SETTLE)
    for kind, decisions in DECISIONS.items()
}
_YES: Final = frozenset({"yes", "y", "true", "ok", "grant", "approve", "allow"})
_NO: Final = frozenset({"no", "n", "false", "deny", "reject"})


_NO_TOOLS: Final[Mapping[str, Tool]] = {}
_NO_RESULT: Final = GivenResult(text="no result came within its time", error=True)
OTHER_ANSWER: Final = "it was answered before, and the first answer counts"
_SAME_ARGUMENTS: Final = "several people approve the same arguments: reject instead"
_ALWAYS: Final = "always"
_NO_ALWAYS: Final = "always is one person's approval of a call as it is, without rules, and not a sub-agent's"
_NOT_AUTHORIZED: Final = "your app must authorize its answer: give it where the app's Engine(authorize=...) is"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with an explicit decision, and with text for the model if there is any."""

    decision: Decision
    text: str = ""
    #: The arguments that an approved call runs with, instead of the model's.
    arguments: Mapping[str, JsonValue] | None = None
    #: The result of the call: with the decision `settle`, and only then.
    given: GivenResult | None = None
    #: Whether the approval covers equal calls of the session too (docs/rules.md#always).
    always: bool = False

    @classmethod
    def of(cls, answer: Answered) -> Self:
        """Return a journaled answer."""
        arguments = None if answer.arguments is None else thaw(answer.arguments)
        return cls(answer.decision, answer.text, arguments, answer.given, answer.always)


Answers = Mapping[str, str | bool | Answer]


@dataclass(frozen=True, slots=True)
class Signature:
    """The person who answered, the channel, and the time in seconds since the Unix epoch."""

    by: str = ""
    via: str = ""
    at: float | None = None

    @classmethod
    def of(cls, answer: Answered) -> Self:
        """Return the signature of a journaled answer."""
        return cls(answer.by, answer.via, answer.at)


class SignatureOptions(TypedDict, total=False):
    """The person who answers and the channel, as the caller claims: nothing checks them."""

    by: str
    """The person or the program, such as a user's name. At most 256 characters."""
    via: str
    """The channel: `api` if it is left out, or a word of your app, such as `slack`. At most 64 characters."""


#: An answer of the engine itself.
UNSIGNED: Final = Signature()
_LONGEST: Final[Mapping[str, int]] = {"by": 256, "via": 64}


def sign(now: float, *, by: str = "", via: str = "api") -> Signature:
    """Return a signature of the time `now`. Raises `ConfigError` for a name that cannot be stored."""
    for field, name in (("by", by), ("via", via)):
        if len(writable(name, field)) > _LONGEST[field]:
            raise ConfigError(f"{field}: at most {_LONGEST[field]} characters, not {len(name)}")
    return Signature(by, via, now)


@dataclass(frozen=True, slots=True)
class Answering:
    """An answer that the app authorizes, or refuses, before it is stored: who answers what, and where.

    `session` and `metadata` are those of the turn, which a person's answers resume: never a sub-agent's. `by` and `via`
    are claims of the caller.
    """

    turn: str
    session: str | None
    metadata: Mapping[str, JsonValue]
    interrupt: Interrupt
    decision: Decision
    by: str
    via: str
    #: Whether the approval covers equal calls too.
    always: bool = False
    #: All arguments that the approved call runs with, if the person changes those of the interrupt.
    arguments: JsonObject | None = None


def answering_of(fold: JournalFold, interrupt: Interrupt, answer: Answer, signature: Signature) -> Answering:
    """Return an answer to an interrupt of a turn as the app judges it."""
    return Answering(
        turn=fold.turn_id,
        session=fold.started.session,
        metadata=fold.started.metadata,
        interrupt=interrupt,
        decision=answer.decision,
        by=signature.by,
        via=signature.via,
        always=answer.always,
        arguments=None if answer.arguments is None else freeze(dict(answer.arguments)),
    )


#: Decides whether an answer may be stored: True, or else False or the reason why not.
Authorize = Callable[[Answering], Awaitable[bool | str]]
#: Returns the reason why the app refuses an answer, or an empty text.
Judge = Callable[[Answering], Awaitable[str]]


def answer_item(
    turn: str, interrupt: str, answer: Answer, signature: Signature = UNSIGNED, *, shared: bool = False
) -> InboxItem:
    """Make an answer to an open interrupt. It has at most one, or if it is `shared`, one of each person."""
    fields: dict[str, JsonValue] = {"interrupt": interrupt, "decision": str(answer.decision), "text": answer.text}
    if answer.arguments is not None:
        fields["arguments"] = {**thaw(answer.arguments)}
    if answer.always:
        fields["always"] = True
    if answer.given is not None:
        fields["given"] = to_builtins(answer.given, enc_hook=plain)
    fields |= {name: value for name, value in asdict(signature).items() if value not in ("", None)}
    person = f"/{signature.by}" if shared else ""
    return InboxItem(turn, f"{ANSWER_PREFIX}{interrupt}{person}", InboxKind.ANSWER, json.dumps(fields))


def make_default_answer(interrupt: Interrupt | InterruptRecord, text: str) -> Answer:
    """Return the answer to an interrupt that is not answered in time, or that can no longer be answered."""
    decisions = {InterruptKind.DOOM_LOOP: Decision.STOP, InterruptKind.UNKNOWN_OUTCOME: Decision.UNKNOWN}
    return Answer(decisions.get(interrupt.kind, Decision.REJECT), text)


def make_expiry_answer(interrupt: Interrupt | InterruptRecord) -> Answer:
    """Return the answer to an interrupt that was not answered in time. A wait for a result ends with one."""
    if interrupt.kind is not InterruptKind.RESULT:
        return make_default_answer(interrupt, "nobody answered in time")
    return Answer(Decision.SETTLE, given=interrupt.otherwise or _NO_RESULT)


def reject(words: str = "") -> Answer:
    """Reject a call. The model receives `words`."""
    return Answer(Decision.REJECT, words)


@overload
def settled(result: JsonValue | ToolResult, /) -> Answer: ...
@overload
def settled(*, error: str) -> Answer: ...
def settled(result: JsonValue | ToolResult | NotGiven = NOT_GIVEN, /, *, error: str | None = None) -> Answer:
    """Give the result of a call that waits for one, or whose outcome is unknown; or the `error` with which it failed.

    The call does not run again. Raises `ConfigError` for a result that is too large or not JSON.
    """
    return Answer(Decision.SETTLE, given=settled_result(result, error))


def settled_result(result: JsonValue | ToolResult | NotGiven, error: str | None) -> GivenResult:
    """Return the result or the error of a call from outside. Raises `ConfigError`: see `settled`."""
    if (error is None) == isinstance(result, NotGiven):
        raise ConfigError("give the result, or error=...: one of both")
    need_kind("error", error, str | None, "text")
    if error is not None and not error.strip():
        raise ConfigError("error: the model reads it: say what failed")
    try:
        return give_result(error, error=True) if isinstance(result, NotGiven) else give_result(result)
    except ValueError as reason:
        raise ConfigError(str(reason)) from None


def approve(*, arguments: Mapping[str, JsonValue] | None = None, always: bool = False) -> Answer:
    """Approve a call, or the read access that it asks for.

    `always` approves equal calls too, with the same tool and arguments, in this turn and in later turns of its session,
    until `Engine.revoke_approvals`. See docs/rules.md#always.

    `arguments` are all arguments that the call runs with, instead of the model's. The tool checks them when the answer
    is given, and again before it runs. See docs/rules.md#changed-arguments.
    """
    return Answer(Decision.APPROVE, arguments=arguments, always=always)


def parse_answer(
    interrupts: tuple[Interrupt, ...],
    interrupt: str,
    answer: str | bool | Answer,
    *,
    now: float = -math.inf,
    answered_ids: Collection[str] = (),
    tools: Mapping[str, Tool] = _NO_TOOLS,
    by: str = "",
) -> Answer:
    """Check an answer to the open interrupt of that id, and return it with its decision.

    A question takes any text. An approval or a read access takes yes or no (True or False), and an approval `always`. A
    doom loop takes `go_on`, `always` or `stop`, an unknown outcome `rerun` or `unknown`. A text that is a JSON object
    approves a call with these arguments, which its tool among `tools` checks. Where several people must approve, `by`
    is another person than those who have approved.

    Raises `InvalidAnswerError`, which lists the open interrupts, also for one that expired by `now` (seconds since the
    Unix epoch). Interrupts in `answered_ids` count as closed. See docs/rules.md#approvals.
    """
    ids = [open_interrupt.id for open_interrupt in interrupts if open_interrupt.id not in answered_ids]
    open_interrupt = next((open_interrupt for open_interrupt in interrupts if open_interrupt.id == interrupt), None)
    if open_interrupt is None:
        raise InvalidAnswerError(interrupt, "no such interrupt is open", ids)
    if open_interrupt.expires_at is not None and open_interrupt.expires_at <= now:
        raise InvalidAnswerError(interrupt, "it has expired: resume the turn without an answer to it", ids)
    takes = ANSWERABLE[open_interrupt.kind]
    reply = answer if isinstance(answer, Answer) else _read_reply(open_interrupt, answer, ids)
    if reply.decision not in (takes if reply.given is None else DECISIONS[open_interrupt.kind]):
        decision = reply.decision if isinstance(answer, Answer) else f"{answer!r:.80}"
        words = _words_of_refusal(open_interrupt.kind, decision)
        raise InvalidAnswerError(interrupt, words, ids, is_unfit=True)
    _check_always(open_interrupt, reply, ids)
    if reply.given is not None:
        _check_result(open_interrupt, reply, reply.given, ids)
    if not isinstance(reply.text, str):
        raise InvalidAnswerError(interrupt, f"its text must be text, not {reply.text!r:.80}", ids, is_unfit=True)
    try:
        reply.text.encode()
    except UnicodeEncodeError as error:
        why = f"its text has half a surrogate pair at character {error.start}"
        raise InvalidAnswerError(interrupt, why, ids, is_unfit=True) from None
    if reply.decision is Decision.APPROVE and open_interrupt.is_shared:
        _check_approver(open_interrupt, by, ids)
    return reply if reply.arguments is None else _change_arguments(open_interrupt, reply, reply.arguments, tools, ids)


def _read_reply(interrupt: Interrupt, answer: str | bool, ids: Sequence[str]) -> Answer:
    """Read an answer that is a word, a text or a bool. Raises `InvalidAnswerError` for arguments that are not JSON."""
    is_approval = interrupt.kind is InterruptKind.APPROVAL
    if is_approval and isinstance(answer, str) and answer.lstrip().startswith("{"):
        return approve(arguments=read_arguments(interrupt.id, answer, ids))
    if is_approval and str(answer).strip().lower() == _ALWAYS:
        return approve(always=True)
    if interrupt.kind is InterruptKind.QUESTION and isinstance(answer, str):
        return Answer(Decision.REPLY, answer)
    return Answer(_decision(answer, ANSWERABLE[interrupt.kind]) or Decision.REPLY)


def _check_result(interrupt: Interrupt, reply: Answer, result: GivenResult, ids: Sequence[str]) -> None:
    """Raise `InvalidAnswerError` for a result with another decision, and for one that does not fit its schema."""
    if reply.decision is not Decision.SETTLE:
        raise InvalidAnswerError(interrupt.id, "a result comes with settle, and only with it", ids)
    misfit = "" if interrupt.schema is None else find_misfit(interrupt.schema, result)
    if misfit:
        why = f"the result does not fit output_schema: {misfit}"
        raise InvalidAnswerError(interrupt.id, why, ids, is_unfit=True)


def _check_always(interrupt: Interrupt, reply: Answer, ids: Sequence[str]) -> None:
    """Raise `InvalidAnswerError` for an answer that may not cover equal calls."""
    is_plain = reply.decision is Decision.APPROVE and reply.arguments is None
    if reply.always and not (is_plain and interrupt.may_cover_equal_calls):
        raise InvalidAnswerError(interrupt.id, _NO_ALWAYS, ids, is_unfit=True)


def _check_approver(interrupt: Interrupt, by: str, ids: Sequence[str]) -> None:
    """Raise `InvalidAnswerError` for a person who does not count among the approvers of a call."""
    if not by.strip():
        raise InvalidAnswerError(interrupt.id, "it needs a name: give by=", ids)
    if by in interrupt.approved_by:
        raise InvalidAnswerError(interrupt.id, f"it needs another approver: {by} has approved", ids)


def read_arguments(interrupt: str, text: str, ids: Sequence[str]) -> dict[str, JsonValue]:
    """Read the arguments that a person typed. Raises `InvalidAnswerError`."""
    try:
        arguments = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        why = f"the changed arguments are not a JSON object: {explain_json_error(error)}"
        raise InvalidAnswerError(interrupt, why, ids, is_unfit=True) from None
    if not isinstance(arguments, dict):
        raise InvalidAnswerError(interrupt, "the changed arguments are not a JSON object", ids, is_unfit=True)
    return cast("dict[str, JsonValue]", arguments)


def _change_arguments(
    interrupt: Interrupt,
    reply: Answer,
    new_arguments: Mapping[str, JsonValue],
    tools: Mapping[str, Tool],
    ids: Sequence[str],
) -> Answer:
    """Return the approval with its arguments, if they are not the asked ones. Raises `InvalidAnswerError`."""
    if interrupt.kind is not InterruptKind.APPROVAL or reply.decision is not Decision.APPROVE:
        why = "only the approval of a call may change its arguments"
        raise InvalidAnswerError(interrupt.id, why, ids, is_unfit=True)
    if not isinstance(new_arguments, Mapping):
        why = f"the changed arguments are not a JSON object: {new_arguments!r:.80}"
        raise InvalidAnswerError(interrupt.id, why, ids, is_unfit=True)
    if deeper_than(dict(new_arguments), MOST_NESTED):
        why = f"the changed arguments nest more than {MOST_NESTED} lists and objects"
        raise InvalidAnswerError(interrupt.id, why, ids, is_unfit=True)
    try:
        arguments = json.loads(json.dumps(thaw(new_arguments), allow_nan=False, ensure_ascii=False).encode())
        if _canonical(arguments) == _canonical(thaw(interrupt.arguments or {})):
            return replace(reply, arguments=None)
        if interrupt.is_shared:
            raise InvalidAnswerError(interrupt.id, _SAME_ARGUMENTS, ids, is_unfit=True)
        tool = tools.get(interrupt.tool)
        if tool is not None:
            tool.parse(arguments)
    except (ToolError, TypeError, ValueError) as error:
        why = f"the changed arguments do not fit {interrupt.tool}: {error}"
        raise InvalidAnswerError(interrupt.id, why, ids, is_unfit=True) from None
    if tool is None:
        why = f"its arguments cannot be changed here, because this process has no tool {interrupt.tool!r} that checks"
        why += " them: answer where the turn's tools are, or name them with --tools, and sub-agents with --agents"
        raise InvalidAnswerError(interrupt.id, why, ids)
    return replace(reply, arguments=arguments)


def _canonical(arguments: Mapping[str, JsonValue]) -> str:
    return json.dumps(arguments, sort_keys=True)


def _decision(answer: str | bool, takes: tuple[Decision, ...]) -> Decision | None:
    word = str(answer).strip().lower().replace("-", "_")
    if word in _YES and Decision.APPROVE in takes:
        return Decision.APPROVE
    if word in _NO and Decision.REJECT in takes:
        return Decision.REJECT
    return next((decision for decision in takes if decision == word), None)


def _words_of_refusal(kind: InterruptKind, decision: str) -> str:
    """Return what an interrupt of this kind accepts instead: `a grant takes yes or no, not 'perhaps'`."""
    names = {Decision.APPROVE: "yes", Decision.REJECT: "no"}
    words = " or ".join(names.get(decision, str(decision)) for decision in ANSWERABLE[kind])
    words += ", always or JSON arguments" if kind is InterruptKind.APPROVAL else ""
    settles = "; settled(...) gives its result" if Decision.SETTLE in DECISIONS[kind] else ""
    return f"{_article(kind)} takes {words}, not {decision}{settles}"


def _article(kind: InterruptKind) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def need_turn_id(turn_id: str) -> None:
    """Raise `ConfigError` for anything but text, such as a result in the place of its id."""
    need_kind("turn_id", turn_id, str, "the id of a turn, such as `turn.id`")


def need_root(turn_id: str, do: str = "resume") -> None:
    """Raise `ConfigError` for a sub-agent's turn, which its parent drives; it says to `do` it to the root turn."""
    need_turn_id(turn_id)
    root = root_of(turn_id)
    if root != turn_id:
        raise ConfigError(f"turn {turn_id} is a sub-agent's, and its parent drives it: {do} turn {root}")


def need_agent(fold: JournalFold, agent: Agent | None) -> None:
    """Raise `ConfigError` for an agent that is not the turn's."""
    if agent is not None:
        need_agent_name(fold.turn_id, str(fold.started.agent.get("name")), agent.name)


def need_agent_name(turn_id: str, name: str, agent_name: str) -> None:
    """Raise `ConfigError` for an agent whose name is not that of the turn's agent."""
    if agent_name != name:
        raise ConfigError(f"turn {turn_id} belongs to agent {name!r}, not to {agent_name!r}")


async def current_result(store: Store, turn_id: str) -> TurnResult:
    """Return a turn's current result. Raises `TurnNotFoundError`."""
    facts, inbox = await store.facts(turn_id), await store.inbox(turn_id)
    result = result_of(turn_id, facts, tuple(steers(inbox).values()))
    # Read last: then the turn was still queued when everything else was read.
    if result.outcome is None and (await store.get(turn_id)).status.state is QUEUED:
        result = replace(result, state=QUEUED)
    interrupts = with_inbox(result.interrupts, inbox)
    return replace(result, interrupts=interrupts, answered=answers_in(inbox, interrupts))


def need_live(turn_id: str, outcome: Outcome | None, reason: EndReason | None) -> None:
    """Raise `TurnAlreadyEndedError` for a turn that has ended."""
    if outcome is not None and reason is not None:
        raise TurnAlreadyEndedError(turn_id, outcome, reason)


async def post_answers(
    store: Store,
    fold: JournalFold,
    answers: Answers,
    *,
    now: float,
    tools: Mapping[str, Tool] = _NO_TOOLS,
    signature: Signature = UNSIGNED,
    judge: Judge | None = None,
) -> dict[str, Answer]:
    """Post all answers to the inbox of a turn, or none. Returns them parsed, by interrupt.

    `signature` says who answers. The same answer again is accepted, and the first signature stands. `now` is in seconds
    since the Unix epoch. `tools` check changed arguments. `judge` returns the reason why the app refuses an answer, or
    an empty text. Without it, an answer that the app must authorize is refused. Raises `InvalidAnswerError`, naming the
    open interrupts, and `TurnAlreadyEndedError`.
    """
    turn, turn_id = fold.machine.turn, fold.turn_id
    need_live(turn_id, turn.state.outcome, turn.reason)
    if not isinstance(answers, Mapping):
        raise ConfigError(f"answers must map each interrupt's id to its answer, not {answers!r}")
    interrupts = {interrupt.id: interrupt for interrupt in Interrupt.all_of(turn_id, turn, fold.transcript.started_at)}

    def parse_all(answered_ids: Collection[str] = ()) -> dict[str, Answer]:
        return {
            name: parse_answer(
                tuple(interrupts.values()),
                name,
                answer,
                now=now,
                answered_ids=answered_ids,
                tools=tools,
                by=signature.by,
            )
            for name, answer in answers.items()
        }

    replies: dict[str, Answer] | None = None
    with suppress(InvalidAnswerError):
        replies = parse_all()
    if replies is None:  # the error lists the open interrupts, which only the inbox knows
        replies = parse_all(answers_in(await store.inbox(turn_id), interrupts.values()))
    for name, reply in replies.items():
        await need_authorized(judge, answering_of(fold, interrupts[name], reply, signature), [*interrupts])
    items = {
        answer_item(turn_id, name, reply, signature, shared=interrupts[name].is_shared): name
        for name, reply in replies.items()
    }
    waiting = {item.id: item for item in await store.post(*items)}
    if waiting and all(is_same_answer(item, waiting.get(item.id, item)) for item in items):
        items = {waiting.get(item.id, item): name for item, name in items.items()}  # the first signature stands
        waiting = {item.id: item for item in await store.post(*items)}
    posted_ids = waiting.keys()
    for item, name in items.items():
        if item.id in posted_ids:
            closed_ids = {late_name for late_item, late_name in items.items() if late_item.id in posted_ids}
            closed_ids |= answers_in(await store.inbox(turn_id), interrupts.values())
            raise InvalidAnswerError(
                name, OTHER_ANSWER, [open_id for open_id in interrupts if open_id not in closed_ids]
            )
    return replies


async def has_moved(store: Store, *folds: JournalFold) -> bool:
    """Whether facts were written to one of these turns since it was read."""
    return any([await store.facts(fold.turn_id, fold.seq) for fold in folds])


async def need_usable(store: Store, fold: JournalFold, replies: Mapping[str, Answer], by: str) -> None:
    """Raise as `post_answers` does for posted answers that no driver will use, because the turn moved after `fold`."""
    if not await has_moved(store, fold):
        return
    latest = await JournalFold.read(store, fold.turn_id, keep_facts=True)
    still = [*latest.machine.turn.interrupts]
    _need_accepted(latest, replies, by, still, fold.seq)
    for name in replies.keys() - _group_answers(latest, fold.seq).keys():
        if name not in still:
            need_live(fold.turn_id, latest.machine.turn.state.outcome, latest.machine.turn.reason)
            raise InvalidAnswerError(name, "no such interrupt is open", still)


async def need_authorized(judge: Judge | None, answering: Answering, ids: Sequence[str]) -> None:
    """Raise `InvalidAnswerError` for an answer that the app does not authorize. `ids` are the open interrupts."""
    why = "" if judge is None else await judge(answering)
    if judge is None and answering.interrupt.restricted:
        why = _NOT_AUTHORIZED
    if why:
        raise InvalidAnswerError(answering.interrupt.id, why, ids, is_refused=True)


async def need_accepted(
    store: Store, fold: JournalFold, result: TurnResult, replies: Mapping[str, Answer], by: str, *, after: int
) -> None:
    """Raise `InvalidAnswerError` if other answers were accepted instead of these of the person `by`.

    `fold` was driven since they were posted, from fact `after` on. An input guardrail may have withheld the text of
    one.
    """
    if not replies.keys() <= _group_answers(fold, after).keys():  # another driver may have fed them
        await fold.catch_up(store)
    still = [interrupt.id for interrupt in result.interrupts if interrupt.id not in result.answered]
    _need_accepted(fold, replies, by, still, after)


def _need_accepted(fold: JournalFold, replies: Mapping[str, Answer], by: str, still: Sequence[str], after: int) -> None:
    facts_by_interrupt = _group_answers(fold, after)
    for name, reply in replies.items():
        answers = facts_by_interrupt.get(name, ())
        if len(answers) > 1:  # several people
            answers = [answer for answer in answers if answer.by == by]
        elif not answers:
            continue
        if not any(Answer.of(answer) == reply or is_withheld(answer.text) for answer in answers):
            raise InvalidAnswerError(name, OTHER_ANSWER, still)


def _group_answers(fold: JournalFold, after: int) -> dict[str, list[Answered]]:
    """Return the answers of the journal after this fact, by interrupt: a call that runs again may wait again."""
    facts_by_interrupt: dict[str, list[Answered]] = {}
    for seq, fact in fold.facts:
        if seq > after and isinstance(fact, Answered):
            facts_by_interrupt.setdefault(fact.interrupt, []).append(fact)
    return facts_by_interrupt
