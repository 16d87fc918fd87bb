"""Plays the visits of a case with the desk's real tools, and collects its faults."""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, wraps
from itertools import groupby
from types import FrameType
from typing import Final, Literal

import anyio
from anyio.abc import TaskGroup
from msgspec import structs

from turnwright._base.background_task import first_error
from turnwright.agent import OUTPUT_TOOL
from turnwright.context import JsonObject
from turnwright.driver.hooks.asking import call_function
from turnwright.driver.hooks.hooks import Hooks, overrides
from turnwright.errors import CannotRunError, ConfigError, InvalidAnswerError, StoreError, TurnAlreadyEndedError
from turnwright.journal.answers import ANSWERABLE, Answer
from turnwright.journal.result import TurnResult
from turnwright.message import Message, ToolResultPart
from turnwright.model.protocol import ModelRequest
from turnwright.model.retry import Backoff
from turnwright.runtime.engine import Engine
from turnwright.store import MemoryStore, Store
from turnwright.transcript.events import (
    FactEvent,
    ResponseRestartedEvent,
    ResponseWithdrawnEvent,
    TextDeltaEvent,
    TurnEvent,
)
from turnwright.transcript.interrupt import Interrupt
from turnwright.transcript.pairing import repair_pairs
from turnwright_states import CallStatus, EndReason
from turnwright_states import facts as f
from turnwright_states.limits import TOOL_TIMEOUT
from turnwright_testing.faults import FaultyStore, StoreCall
from turnwright_testing.flaky import FlakyModel
from turnwright_testing.play import without_models
from turnwright_testing.reached import Reached, ReachedTurns, name_of

from .checks import Checks
from .desk import Desk
from .hang_watch import BlockedLoopError, HangWatch, daemon_threads
from .locks import free_locks, held_locks
from .own_words import OwnWords
from .unawaited import unawaited_coroutines
from .visit import Reply, Visit, Visits
from .watched_tool import Effect, OnFault, ToolWatch, place_in_threads, place_of_frame, waiting_functions
from .world import list_grown, sizes_of

#: Seconds of real time without a new fact after which a case hangs.
PATIENCE: Final = 2.0
#: The pauses of a turn that people answer; then it is aborted.
_MOST_PAUSES: Final = 8
#: How many people try to answer a pause.
_PEOPLE: Final = 4
#: The most steps of a turn that asks for the same calls again and again.
_MOST_STEPS: Final = 50
_NEVER_WAIT: Final = Backoff(initial=0.0, max_retry_after=0.0)
#: The hook, the guardrail or the function of the dependencies that an error names.
_NAMED: Final = re.compile(r"(?:hook|guardrail|validator|deps:) '?([\w.]+)'?")
#: Seconds beyond the longest time limit of a tool, after which a turn without a new fact hangs.
_BEYOND: Final = 60.0
_COVERED: Final = "a call that `always` covers"
#: How a call ends that may leave something behind, and how many later calls must fail because of it.
_FAILED: Final = (CallStatus.ERROR, CallStatus.ABORTED)
_LATER: Final = 2
#: Seconds of skipped time in which canceled calls may clean up.
_CLEANUP: Final = 1.0
#: The most seconds that a thread gets to end.
_REST: Final = 0.5


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: the tools and the hooks that it is about, its kind, and a sentence for people.

    `is_timed`: real time decides about it, which a busy machine stretches, so that further runs must confirm it.
    """

    subject: str
    kind: str
    detail: str
    is_timed: bool = False

    def __str__(self) -> str:
        return f"{self.subject}: {self.detail}"


class Script:
    """Decides what comes to the desk: the visits, the replies of the model, and the answers of people.

    Here all is as the visits say. A subclass decides in another way.
    """

    def __init__(self, visits: Visits) -> None:
        self.visits = visits

    def reply(self, place: int, number: int, request: ModelRequest) -> Reply:  # noqa: ARG002 (a script takes any)
        """Return the reply to a request of the visit at `place`; both count from 0."""
        replies, is_endless = self.visits[place].replies, self.visits[place].endless
        if number < len(replies):
            return replies[number]
        return replies[-1] if is_endless and replies else "Done."

    def answer(self, place: int, number: int, interrupts: Sequence[Interrupt]) -> Mapping[str, Answer]:
        """Return the answers at a pause of the visit, the `number`-th from 0."""
        answers = self.visits[place].answers
        script = answers[number] if number < len(answers) else {}
        return {interrupt.id: script.get(interrupt.id) or _first_answer(interrupt) for interrupt in interrupts}

    def person(self, place: int, number: int) -> str:
        """Return a person who answers that pause, where the app authorizes people. Asked again if it refuses one."""
        people = self.visits[place].people
        return people[number] if number < len(people) else _name_person(number)

    def hear(self, tool: str, result: str, accepted_arguments: JsonObject | None) -> None:
        """Take note of the result of a call, and of its arguments if it succeeded. A script learns nothing."""


class Rehearsal:
    """One case: its `faults`, oldest first, its calls' `results`, and the `visits` as they were, for a `Script`.

    With `answers_covered`, a call that an approval of an equal call covers has this approval as its answer.
    """

    def __init__(
        self,
        desk: Desk,
        guest: Script,
        reach_counts: Reached,
        *,
        patience: float = PATIENCE,
        answers_covered: bool = False,
    ) -> None:
        self.faults: list[Fault] = []
        self.results: dict[tuple[str, str], tuple[CallStatus, str]] = {}
        self.visits: list[Visit] = [replace(visit, replies=(), answers=(), people=()) for visit in guest.visits]
        self._desk = desk
        self._guest = guest
        self._reached = reach_counts
        self._patience = patience
        self._answers_covered = answers_covered
        self._facts = ReachedTurns(reach_counts)
        self._own_words = OwnWords()
        self._checks = Checks(desk.invariants, reach_counts, self._own_words)
        self._disk: Store = MemoryStore()
        self._tool_watch = ToolWatch(desk, self._note, reach_counts.warnings)
        self._tools = [tool if tool.delegates else self._tool_watch.watch(tool) for tool in desk.tools]
        self._agent = without_models(desk.agent)
        self._agents = [
            self._agent if agent.name == self._agent.name else without_models(agent) for agent in desk.agents
        ]
        timeouts = [tool.timeout or 0.0 for tool in desk.tools]
        self._watch = HangWatch(patience, max([TOOL_TIMEOUT, *timeouts]) + _BEYOND, self._hang)
        self._scope: anyio.CancelScope | None = None
        self._group: TaskGroup | None = None
        #: The engine of each turn, and how many of its calls have started.
        self._engines: dict[str, Engine[None]] = {}
        self._starts: Counter[str] = Counter()
        #: The calls that have started and have no result, with their tools.
        self._open_calls: dict[tuple[str, str], str] = {}
        #: The tools of each turn whose calls have results, and the hooks that decided; and those since the last check.
        self._acts: dict[str, dict[str, None]] = {}
        self._recent: dict[str, None] = {}
        #: The hooks, guardrails and validators of the last engine and the agent, and the function of its instructions.
        self._watchers: list[str] = []
        #: The history processor of the last engine; empty without one.
        self._shortener = ""
        self._follower = Follower(self._note, reach_counts.warnings)
        #: The tools of the calls that an approval of an equal call covers.
        self._covered: dict[tuple[str, str], str] = {}
        self._interrupted: _Crash | None = None
        #: The turn of a process that is going to die.
        self._mortal: set[str] = set()
        #: The sizes of the world when the last call started of a process that is going to die.
        self._before: dict[str, int] = {}

    def play(self) -> "Rehearsal":
        """Play the case from the beginning of the outside world. Raises `ConfigError` for a desk that cannot run."""
        self._play_visits()
        if all(visit.dies_at is None for visit in self.visits):  # else calls may have failed whose results are lost
            self._compare_skipped()
        is_suspicious = self.faults or any(status is CallStatus.ERROR for status, _ in self.results.values())
        if self._covered and is_suspicious and not self._answers_covered:
            self._compare_covered()
        return self

    def _compare_covered(self) -> None:
        """Play the case with answers of the covered calls, and drop what breaks by the lack of these alone.

        A tool may note its answers, for an invariant: that is worth a warning. The calls must end as with an answer.
        """
        script, tools = Script(tuple(self.visits)), dict.fromkeys(self._covered.values())
        rehearsal = Rehearsal(self._desk, script, Reached(), patience=self._patience, answers_covered=True).play()
        is_same = all(rehearsal.results.get(key) == self.results.get(key) for key in self._covered)
        for key, (status, text) in self.results.items():
            if status is CallStatus.ERROR and rehearsal.results.get(key, (status, ""))[0] is CallStatus.OK:
                subject = self._subject({self._facts.tool(*key): None, **tools})
                self._note(subject, "needs an answer", f"{_COVERED} fails: it has no ctx.answers: {text}")
                is_same = False
        notes = {invariant.__name__ for invariant in self._desk.invariants if is_same}
        notes -= {fault.kind for fault in rehearsal.faults}
        for name in (fault.kind for fault in self.faults if fault.kind in notes):
            self._reached.warnings[f"{', '.join(tools)}: {name} needs ctx.answers, but {_COVERED} has none"] = None
        self.faults = [fault for fault in self.faults if fault.kind not in notes]

    def _compare_skipped(self) -> None:
        """Play the case without the failed calls after which their tool only fails, always for one other reason.

        A later call that then succeeds fails because of them: they leave something behind, such as a busy flag.
        """
        for tool in {self._facts.tool(*key): None for key in self.results}:
            calls = [key for key in self.results if self._facts.tool(*key) == tool]
            *earlier, (result, later_calls) = [
                (result, [*keys]) for result, keys in groupby(calls, self.results.__getitem__)
            ]
            failed_calls = [key for (status, _), keys in earlier if status in _FAILED for key in keys]
            if result[0] is not CallStatus.ERROR or not failed_calls or len(later_calls) < _LATER:
                continue
            if culprits := self._find_culprits(failed_calls, later_calls):
                names, failure = ", ".join(call for _, call in culprits), self.results[culprits[0]][1]
                why = f"call {names} fails ({failure!r}), and later calls only by it: {result[1]!r}"
                self._note(tool, "makes later calls fail", why)

    def _find_culprits(
        self, failed_calls: Sequence[tuple[str, str]], later_calls: Sequence[tuple[str, str]]
    ) -> Sequence[tuple[str, str]]:
        """Return those of the failed calls without which a later one succeeds, and whose change success would undo.

        A tool may block by intent what is tried wrongly: no success makes that change and undoes it. A single call
        whose change cannot be seen is a culprit too.
        """
        results, effects = self._trace(frozenset(failed_calls))
        successes = [key for key in later_calls if results.get(key, ("",))[0] is CallStatus.OK]
        if not successes:
            return ()
        undone_changes = {name for key in effects.keys() & successes for name in effects[key].undone_changes}
        _, effects = self._trace(frozenset(self.results.keys() - failed_calls))
        changes = {key: effects[key].kept_changes for key in failed_calls if key in effects}
        culprits = [key for key, names in changes.items() if names & undone_changes]
        locks = held_locks(self._desk.modules).keys()
        return culprits or [key for key, names in changes.items() if names <= locks and len(failed_calls) == 1]

    def _trace(
        self, skipped_calls: frozenset[tuple[str, str]]
    ) -> tuple[Mapping[tuple[str, str], tuple[CallStatus, str]], Mapping[tuple[str, str], Effect]]:
        """Return the results and the effects of the case in which the skipped calls do nothing but fail."""
        replay = Rehearsal(self._desk, Script(tuple(self.visits)), Reached(), patience=self._patience)
        replay._tool_watch.skipped = skipped_calls
        with replay._tool_watch.effects_traced():
            replay._play_visits()
        return replay.results, replay._tool_watch.effects

    def _play_visits(self) -> None:
        self._let_threads_end()
        self._desk.reset()
        locks = held_locks(self._desk.modules)
        try:
            with (
                self._watch.alarm(),
                daemon_threads(),
                unawaited_coroutines(self._desk.files, self._note_unawaited),
            ):
                options = {"loop_factory": self._watch.make_loop}
                anyio.run(self._play, backend="asyncio", backend_options=options)
        except BaseException as error:
            fatal_errors, _ = BaseExceptionGroup("", [error]).split(_is_fatal)
            if fatal_errors is not None:
                raise first_error(fatal_errors) from error
            error = first_error(error)
            if not isinstance(error, BlockedLoopError):  # noted as a hang
                self._note_error("the engine raises", f"the engine raises {type(error).__name__}: {error}", None)
        finally:
            free_locks(self._desk.modules, locks)

    async def _play(self) -> None:
        loop = self._watch.loop
        assert loop is not None  # noqa: S101 (this runs in it)
        loop.wait_for_threads()
        async with anyio.create_task_group() as self._group:
            self._group.start_soon(self._watch.wait_for_hang)
            with anyio.CancelScope() as self._scope:
                for places in _together(self._guest.visits):
                    async with anyio.create_task_group() as visits:
                        for place in places:
                            visits.start_soon(self._visit, place, len(places) == 1)
            self._group.cancel_scope.cancel()

    async def _visit(self, place: int, is_alone: bool) -> None:
        visit, turn = self._guest.visits[place], f"visit-{place + 1}"
        model = _RehearsedModel(partial(self._reply, place, turn))
        # Visits that begin together are of one process, and their journal is open in it.
        store = _DyingStore(self._disk, visit.dies_at if is_alone else None)
        self._mortal = {turn} if is_alone and visit.dies_at is not None else set()
        engine = self._engine(model, store)
        self._engines[turn] = engine
        self._expect(turn, engine)
        begin = partial(
            engine.run, self._agent, visit.prompt, id=turn, session=visit.session, metadata=dict(visit.metadata)
        )
        try:
            result: TurnResult = await self._answer(engine, place, await begin())
        except StoreError:
            if not store.failed:
                raise
            await store.aclose()
            await anyio.sleep(_CLEANUP)
            self._die(turn)
            engine = self._engine(model, self._disk)
            await engine.recover()
            result = await self._answer(engine, place, await engine.get(turn))
        if result.outcome is not None:
            if any(status is CallStatus.ABORTED for (owner, _), (status, _) in self.results.items() if owner == turn):
                await anyio.sleep(_CLEANUP)
            self._judge(turn, result, model.requests)
            limits = self._agent.limits_for()
            if visit.endless and result.reason is EndReason.BUDGET and limits.doom_threshold is None:
                detail = "the same calls spend the budget, and nothing notices the loop"
                self._reached.warnings[f"{self._subject(self._acts.get(turn, {}))}: {detail}"] = None

    def _engine(self, model: "_RehearsedModel", store: Store) -> Engine[None]:
        engine = self._desk.build(
            model=model,
            tools=self._tools,
            store=store,
            agents=self._agents,
            on_event=[self._observe],
            backoff=_NEVER_WAIT,
            clock=anyio.current_time,
        )
        self._watch_shortener(engine)
        return engine

    def _expect(self, turn: str, engine: Engine[None]) -> None:
        agent, setup = self._agent, engine.setup
        hooks = [*setup.hooks, *setup.guardrails, *agent.hooks, *agent.guardrails]
        names = [tool.name for tool in self._tools if agent.may_use(tool.name, delegates=tool.delegates)]
        self._reached.expect(agent, hooks, names, [invariant.__name__ for invariant in self._desk.invariants])
        self._watchers = [
            *(f"hook {name_of(hook)}" for hook in hooks),
            *(getattr(validator, "__name__", "validator") for validator in agent.output_validators),
            *([name_of(agent.instructions)] if callable(agent.instructions) else ()),
        ]
        if setup.history_processor is not None:
            self._act(turn, self._shortener)
        self._act_hooks(turn, "on_start")

    async def _answer(self, engine: Engine[None], place: int, result: TurnResult) -> TurnResult:
        """Answer the pauses of a turn until it ends."""
        # A turn that another process resumes has the answers from before.
        while result.paused and (number := len(self.visits[place].answers)) < _MOST_PAUSES:
            answers = self._guest.answer(place, number, result.interrupts)
            self._own_words.add(
                [(answer.text, answer.arguments, answer.given and answer.given.text) for answer in answers.values()]
            )
            # The tool may refuse the changed arguments, and the app the person.
            first_answers = {interrupt.id: _first_answer(interrupt) for interrupt in result.interrupts}
            for tried_answers in (*[answers] * (_PEOPLE if engine.setup.authorize else 1), first_answers):
                with suppress(InvalidAnswerError):
                    result = await self._resume(engine, place, number, result.id, tried_answers)
                    break
            else:
                break
        if result.paused:
            await engine.abort(result.id)
            result = await engine.get(result.id)
        return result

    async def _resume(
        self, engine: Engine[None], place: int, number: int, turn: str, answers: Mapping[str, Answer]
    ) -> TurnResult:
        """Note the answers of a pause, as the process may die, and resume the turn."""
        visit, person = self.visits[place], _name_person(number)
        if engine.setup.authorize is not None:
            person = self._guest.person(place, number)
            visit = replace(visit, people=(*visit.people[:number], person))
        self.visits[place] = replace(visit, answers=(*visit.answers[:number], answers))
        return await engine.resume(turn, answers, agent=self._agent, by=person)

    def _reply(self, place: int, turn: str, requests: Sequence[ModelRequest]) -> Reply:
        """Return the reply to the last of the requests."""
        self._watch.notice_progress()
        self._check(turn, requests=requests)
        visit = self.visits[place]
        is_bounded = self._agent.limits_for().call_limit is not None  # by its budget, whatever the results are
        if visit.endless and not is_bounded and len(requests) > _MOST_STEPS:
            detail = f"the same calls are repeated in {_MOST_STEPS} steps, and nothing notices the loop"
            self._note(self._subject(self._acts.get(turn, {})), "the turn loops", detail)
            return "Done."
        with self._watch.paused():
            reply = self._guest.reply(place, len(requests) - 1, requests[-1])
        self._own_words.add(reply, requests[-1])
        if not (visit.endless and visit.replies):
            self.visits[place] = replace(visit, replies=(*visit.replies, reply))
        return reply

    def _watch_shortener(self, engine: Engine[None]) -> None:
        """Look at what the history processor of an engine makes, which the engine repairs before a model reads it.

        The desk's own function makes the engine, so its processor is replaced afterwards.
        """
        process = engine.setup.history_processor
        if process is None:
            return
        self._shortener = f"hook {name_of(process)}"
        if engine.setup.unpaired == "reject":  # the turn fails, and its error says why
            return

        @wraps(process)
        async def process_and_look(messages: tuple[Message, ...]) -> object:
            processed_messages = await call_function(process, messages)
            if isinstance(processed_messages, Sequence) and all(
                isinstance(message, Message) for message in processed_messages
            ):
                self._look_for_dropped_results(messages, processed_messages)
            return processed_messages

        structs.force_setattr(engine.setup, "history_processor", process_and_look)

    def _look_for_dropped_results(self, messages: Sequence[Message], processed_messages: Sequence[Message]) -> None:
        if repair_pairs(messages)[1]:  # an imported history was unpaired before
            return
        processed_results, sent_results = (
            _results_in(processed_messages),
            _results_in(repair_pairs(processed_messages)[0]),
        )
        for results, why in (
            (processed_results - sent_results, "its call is cut off"),
            (sent_results - processed_results, "the model reads that there is none"),
        ):
            for name, _, _ in results:
                self._note(f"{self._shortener}, {name}", "drops a result", f"a result of {name} is dropped, and {why}")

    def _observe(self, event: TurnEvent) -> None:
        self._follower.read(event)
        if not isinstance(event, FactEvent):
            return
        self._watch.notice_progress()
        turn, fact = event.turn, event.fact
        self._facts.add(turn, fact)
        self._tool_watch.read(turn, fact)
        for decision in getattr(fact, "decisions", ()):
            if "hook" in decision:
                self._act(turn, f"hook {decision['hook']}")
        match fact:
            case f.CallStarted():
                self._start(turn, fact)
            case f.CallWaiting():
                if (turn, fact.call) in self._open_calls:  # it ran, and waits in the middle of its work
                    self._act(turn, self._open_calls.pop((turn, fact.call)))
            case f.CallSettled():
                self._settle(turn, fact)
            case f.ModelReplied():
                pass
            case _:
                return
        # What an aborted call began may still be cleaned up.
        if not self._open_calls and getattr(fact, "status", None) is not CallStatus.ABORTED:
            self._check(turn)

    def _start(self, turn: str, fact: f.CallStarted) -> None:
        """Note the start of a call."""
        tool = self._open_calls[turn, fact.call] = self._facts.tool(turn, fact.call)
        if any("approval" in decision for decision in fact.decisions):
            self._covered[turn, fact.call] = tool
            if self._answers_covered:
                self._tool_watch.approved.add((turn, fact.call))
        if turn in self._mortal:
            self._before = sizes_of(self._desk.modules)
        self._interject(turn)

    def _settle(self, turn: str, fact: f.CallSettled) -> None:
        """Note the result of a call."""
        tool = self._open_calls.pop((turn, fact.call), self._facts.tool(turn, fact.call))
        self._act(turn, tool)
        if fact.status is CallStatus.ABORTED:
            self._let_threads_end()
        self._compare_world(turn, fact.call, fact.status)
        self.results[turn, fact.call] = fact.status, fact.result
        accepted_arguments = self._tool_watch.arguments.get((turn, fact.call)) if fact.status is CallStatus.OK else None
        self._guest.hear(tool, fact.result, accepted_arguments)

    def _interject(self, turn: str) -> None:
        """Let the person say something, or abort the turn, while the call runs that has started."""
        self._starts[turn] += 1
        visit = next((visit for place, visit in enumerate(self.visits) if turn == f"visit-{place + 1}"), None)
        if visit is not None and visit.interjection is not None and visit.interjection[0] == self._starts[turn]:
            assert self._group is not None  # noqa: S101 (a call has started in it)
            self._group.start_soon(_interject, self._engines[turn], turn, visit.interjection[1])

    def _compare_world(self, turn: str, call: str, status: CallStatus) -> None:
        """Look at the effect of the call that a crash cut off, now that it has its result.

        An effect whose call ended as unknown is counted. An idempotent tool that wrote again, when the call ran again,
        is a fault if it wrote to a file or a database, and else a warning: data of a module may be notes of a test.
        """
        crash, self._interrupted = self._interrupted, None
        if crash is None or crash.call != (turn, call):
            return
        name = self._facts.tool(turn, call)
        tool = next((tool for tool in self._desk.tools if tool.name == name), None)
        if status is CallStatus.UNKNOWN and list_grown(crash.before, crash.after):
            self._reached.tools[name]["effect untold"] += 1
        if tool is None or not tool.idempotent or tool.read_only:
            return
        again, lasting = (
            list_grown(crash.after, sizes_of(self._desk.modules, is_lasting)) for is_lasting in (False, True)
        )
        text = "is declared idempotent, and a call that ran again after a crash added to"
        if lasting:
            self._note(name, "writes again", f"{text} {lasting[0]}")
        elif again and not any(warning.startswith(f"{name} {text}") for warning in self._reached.warnings):
            self._reached.warnings[f"{name} {text} {again[0]}"] = None

    def _act(self, turn: str, name: str) -> None:
        if name == OUTPUT_TOOL:
            return
        self._acts.setdefault(turn, {})[name] = None
        self._recent[name] = None

    def _act_hooks(self, turn: str, on: str) -> None:
        """Note the hooks that decide nothing: those at the start or at the end of a turn."""
        for hook in (*self._engines[turn].setup.hooks, *self._agent.hooks):
            if isinstance(hook, Hooks) and overrides(hook, on):
                self._act(turn, f"hook {name_of(hook)}")

    def _check(self, turn_id: str, **values: object) -> None:
        """Evaluate the invariants that take these values, and name those who acted since the last check."""
        # At the first request of a turn, those acted who made the conversation before it, and who let the prompt pass.
        earlier = {name: None for acts in (*self._acts.values(), self._watchers) for name in acts}
        actors = (self._acts.get(turn_id) or earlier) if values else self._recent
        for name, detail in self._checks.broken(values):
            self._note(self._subject(actors), name, f"{name}: {detail}")
        if not values:
            self._recent = {}

    def _judge(self, turn: str, result: TurnResult, requests: Sequence[ModelRequest]) -> None:
        """Look at the end of a turn."""
        self._reached.ends[f"{result.outcome}/{result.reason}"] += 1
        self._act_hooks(turn, "on_end")
        if result.guardrail is not None:
            self._reached.hooks[result.guardrail.name]["trip"] += 1
            self._act(turn, f"hook {result.guardrail.name}")
        if result.reason is EndReason.ENGINE_ERROR:
            self._note_error("the turn fails", f"the turn fails: {result.error}", self._acts.get(turn, {}))
        if not self._open_calls:
            self._check(turn)
        self._check(turn, turn=result, requests=requests)

    def _die(self, turn: str) -> None:
        """Forget what the dead process knew: the calls that it worked on."""
        with self._watch.paused():
            self._let_threads_end()
        self._interrupted = None
        if len(self._open_calls) == 1:  # else the world is changed by several calls
            self._interrupted = _Crash(next(iter(self._open_calls)), self._before, sizes_of(self._desk.modules))
        for key in [key for key in self._open_calls if key[0] == turn]:
            name = self._open_calls.pop(key)
            self._reached.tools[name]["crashed in"] += 1

    def _let_threads_end(self) -> None:
        """Wait a moment for the work in threads that a dead process or a canceled call left behind."""
        end = time.monotonic() + _REST
        while place_in_threads(self._desk.files) and time.monotonic() < end:
            time.sleep(0.001)

    def _hang(self, frame: FrameType | None, *, is_timed: bool) -> None:
        works, files = [*self._tool_watch.running.values()], self._desk.files
        places = [place_of_frame(frame, files) or work.where(files) for work in works]
        verb = "waits" if frame is None else "blocks the event loop"
        calls = [f"call {work.call} {verb} at {place}" for work, place in zip(works, places, strict=True)]
        # Without a call at work, it is a hook, or another function of the desk.
        functions = {} if works else self._waiting(frame)
        calls += [f"it {verb} at {place}" for place in functions.values()]
        subject = ", ".join([*dict.fromkeys(work.tool for work in works), *functions]) or self._subject()
        self._note(subject, "hangs", f"never ends: {'; '.join(calls) or 'no call is at work'}", is_timed=is_timed)
        if self._scope is not None:
            self._scope.cancel()

    def _waiting(self, frame: FrameType | None) -> Mapping[str, str]:
        """Return the functions of the desk that wait, or that of the frame which blocks the loop, with their places."""
        place = place_of_frame(frame, self._desk.files)
        return {place.rpartition(" in ")[2]: place} if place else waiting_functions(self._desk.files)

    def _note_unawaited(self, coroutine: str, functions: Sequence[str], place: str) -> None:
        tools = {function.__name__: tool.name for tool in self._desk.tools for function in tool.functions}
        works = dict.fromkeys(work.tool for work in self._tool_watch.running.values())
        names = [tools[name] for name in functions if name in tools] or functions or [self._subject(works or None)]
        self._note(names[-1], "is never awaited", f"the coroutine {coroutine} is never awaited ({place})")

    def _note_error(self, kind: str, detail: str, actors: Mapping[str, None] | None) -> None:
        match = _NAMED.search(detail)
        self._note(match[1] if match else self._subject(actors), kind, detail)

    def _note(self, subject: str, kind: str, detail: str, *, is_timed: bool = False) -> None:
        if not any(fault.kind == kind for fault in self.faults):
            self.faults.append(Fault(subject, kind, detail, is_timed))

    def _subject(self, actors: Mapping[str, None] | None = None) -> str:
        """Return the names of those who acted: tools, then hooks; else those who let it pass, or the agent's name."""
        names = sorted(self._recent if actors is None else actors, key=lambda name: name.startswith("hook "))
        return ", ".join(names or self._watchers) or self._agent.name


@dataclass(frozen=True, slots=True)
class _Crash:
    """A call that a crash cut off between its effect and its record: the sizes of the world before and after it."""

    call: tuple[str, str]
    before: Mapping[str, int]
    after: Mapping[str, int]


class _RehearsedModel(FlakyModel):
    """A model whose replies a function makes of the requests so far."""

    name = "rehearsed"

    def __init__(self, reply: Callable[[Sequence[ModelRequest]], Reply]) -> None:
        super().__init__()
        self._reply = reply

    async def next_line(self, request: ModelRequest) -> Reply:  # noqa: ARG002 (it is the last one of `requests`)
        return self._reply(self.requests)


class Follower:
    """Reads what those who follow turns read, which nobody must read of a text that an output guardrail withholds."""

    def __init__(self, on_fault: OnFault, warnings: dict[str, None]) -> None:
        self._on_fault = on_fault
        self._warnings = warnings
        #: The text of each turn's last reply, as far as it was published.
        self._texts: dict[str, str] = {}

    def read(self, event: TurnEvent) -> None:
        """Read an event of a turn."""
        turn = event.turn
        match event:
            case TextDeltaEvent(text=text):
                self._texts[turn] = self._texts.get(turn, "") + text
            case ResponseRestartedEvent() | FactEvent(fact=f.StepStarted() | f.Stopping()):
                self._texts.pop(turn, None)
            case ResponseWithdrawnEvent(guardrail=name):
                self._texts.pop(turn, None)
                self._warnings[f"hook {name}: what it withholds is read before its verdict (hold_stream=False)"] = None
            case FactEvent(fact=f.TurnEnded(guardrail=f.TrippedGuardrail(name=name, checks="output"))) if (
                turn in self._texts
            ):
                self._on_fault(name, "comes too late", f"the text that it withholds was read: {self._texts[turn]!r}")
            case _:
                pass


class _DyingStore(FaultyStore):
    """A store that dies before the result of a call is written: that of this number, counted from 1."""

    def __init__(self, inner: Store, dies_at: int | None) -> None:
        super().__init__(inner)
        self.results = dies_at

    def fault(self, call: StoreCall) -> Literal["", "die before"]:
        results = sum(isinstance(fact, f.CallSettled) for fact in call.facts)
        if self.results is None or self.failed or not results:
            return ""
        self.results -= results
        return "die before" if self.results <= 0 else ""


def _is_fatal(error: BaseException) -> bool:
    """Whether an error ends the run: Ctrl-C, or a desk that cannot run. Dependencies may fail in this turn alone."""
    is_mistake = isinstance(error, ConfigError) and not (isinstance(error, CannotRunError) and error.may_pass)
    return is_mistake or isinstance(error, KeyboardInterrupt)


def _results_in(messages: Sequence[Message]) -> Counter[tuple[str, str, str]]:
    """Return the results in the messages: their tools, calls and texts."""
    parts = (part for message in messages for part in message.parts)
    return Counter((part.name, part.call, part.text) for part in parts if isinstance(part, ToolResultPart))


async def _interject(engine: Engine[None], turn: str, text: str | None) -> None:
    if text is None:  # the batch at work has its own value, so that a canceled call has the usual time to clean up
        structs.force_setattr(engine.setup, "cancel_grace", 0.0)
    with suppress(TurnAlreadyEndedError):
        await (engine.steer(turn, text) if text else engine.abort(turn))


def _together(visits: Visits) -> list[list[int]]:
    """Return the places of the visits, in groups of those that begin together."""
    numbers, number = [], 0
    for visit in visits:
        number += not visit.together
        numbers.append(number)
    return [list(places) for _, places in groupby(range(len(visits)), key=numbers.__getitem__)]


def _name_person(number: int) -> str:
    return f"person-{number + 1}"


def _first_answer(interrupt: Interrupt) -> Answer:
    """Return the first decision that an interrupt takes."""
    return Answer(ANSWERABLE[interrupt.kind][0], "yes")
