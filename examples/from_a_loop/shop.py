"""The shared part of all steps: a client that plays a model, three tools, the problems.

Nothing here is Turnwright. `python step_0_loop.py` plays every problem except `dies`.
An argument plays one problem. `yes` approves what an earlier process asked.
"""

import asyncio
import inspect
import json
import os
import signal
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

#: A message in the chat completions format.
Message = dict[str, Any]

PROBLEMS: Final = {
    "runs away": "What does the manual say?",
    "repeats": "What is on page 1?",
    "says nothing": "Are you there?",
    "tool fails": "Compare pages 1 and 0.",
    "asks": "Refund order 17.",
    "dies": "Charge order 17.",
}
#: The most model calls that the client answers.
MOST_CALLS: Final = 50
LEDGER: Final = Path("charges.txt")


class TooManyCallsError(Exception):
    """The loop made more than `MOST_CALLS` model calls."""


class BadRequestError(Exception):
    """A provider's error for a tool call without a result."""


class Client:
    """A replacement for your provider's client. It replies to the messages alone."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.calls = 0

    def chat(self, messages: list[Message], *, tools: bool = True) -> Message:
        """Make one model call. Raise `BadRequestError` if a tool call has no result."""
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise TooManyCallsError(f"no end after {MOST_CALLS} model calls")
        results = [message for message in messages if message["role"] == "tool"]
        answered = {message["tool_call_id"] for message in results}
        for call in (
            call for message in messages for call in message.get("tool_calls") or ()
        ):
            if call["id"] not in answered:
                raise BadRequestError(
                    f"400: no tool message for tool_call_id {call['id']}"
                )
        if not tools:
            return _says(f"I have {len(results)} results, and am not done.")
        last = max(
            index for index, message in enumerate(messages) if message["role"] == "user"
        )
        if messages[last]["content"] == "Go on.":
            return _says(f"{results[-1]['content']}.")
        return self._reply(
            [message for message in messages[last:] if message["role"] == "tool"]
        )

    def _reply(self, results: list[Message]) -> Message:  # noqa: PLR0911
        done = len(results)
        match self.problem:
            case "runs away":
                return _calls(done, ("search", {"page": done + 1}))
            case "repeats":
                return _calls(done, ("search", {"page": 1}))
            case "tool fails" if not done:
                return _calls(done, ("search", {"page": 1}), ("search", {"page": 0}))
            case "asks" if not done:
                return _calls(done, ("refund", {"order": 17}))
            case "dies" if not done:
                return _calls(done, ("charge", {"order": 17}))
            case "says nothing":
                return _says(None)
            case _:
                return _says(f"{results[-1]['content']}.")


def _says(text: str | None) -> Message:
    return {"role": "assistant", "content": text}


def _calls(done: int, *calls: tuple[str, dict[str, int]]) -> Message:
    tool_calls = [
        {
            "id": f"id{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for number, (name, arguments) in enumerate(calls, start=done)
    ]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls}


def search(page: int) -> str:
    """Read a page of the manual."""
    if page < 1:
        raise ValueError(f"there is no page {page}")
    return f"page {page} says: see page {page + 1}"


def refund(order: int) -> str:
    """Refund an order. A person must approve."""
    return f"order {order} is refunded"


def charge(order: int, key: str = "") -> str:
    """Charge an order, once for each key. Then kill the first process that does so."""
    charged = LEDGER.read_text(encoding="utf-8").splitlines() if LEDGER.exists() else []
    line = f"order {order} {key}".strip()
    if not key or line not in charged:
        with LEDGER.open("a", encoding="utf-8") as ledger:
            ledger.write(line + "\n")
    if not charged:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"order {order} is charged"


class App(Protocol):
    """The interface of each step. Its methods may be async."""

    def respond(self, messages: list[Message]) -> str | Awaitable[str | None] | None:
        """Answer the last message, which is the user's."""
        ...

    def answer(self) -> str | Awaitable[str | None] | None:
        """Approve the last question."""
        ...


@runtime_checkable
class Closing(Protocol):
    """An app that must be closed."""

    async def aclose(self) -> None:
        """Close the app."""
        ...


def play(make: Callable[[Client], App]) -> None:
    """Play the problems with an app, and print the results."""
    asyncio.run(
        _play(
            make, sys.argv[1:] or [problem for problem in PROBLEMS if problem != "dies"]
        )
    )


async def _play(make: Callable[[Client], App], problems: list[str]) -> None:
    for problem in problems:
        if problem == "yes":
            app = make(Client("asks"))
            await _show("answered", app.answer)
        else:
            app = make(Client(problem))
            await _meet(app, problem, alone=len(problems) == 1)
        if isinstance(app, Closing):
            await app.aclose()


async def _meet(app: App, problem: str, *, alone: bool) -> None:
    messages: list[Message] = [{"role": "user", "content": PROBLEMS[problem]}]
    await _show(problem, app.respond, messages)
    if problem == "tool fails":
        messages.append({"role": "user", "content": "Continue."})
        await _show("continue", app.respond, messages)
    if problem == "asks" and not alone:
        await _show("answered", app.answer)
    if problem == "dies":
        charges = LEDGER.read_text(encoding="utf-8").splitlines()
        print(f"{'':13} the ledger has {len(charges)} charge(s)")


async def _show(
    label: str,
    act: Callable[..., str | Awaitable[str | None] | None],
    *messages: list[Message],
) -> None:
    try:
        answer = act(*messages)
        text = await answer if inspect.isawaitable(answer) else answer
    except Exception as error:  # noqa: BLE001 (the user sees it)
        text = f"{type(error).__name__}: {error}"
    indent = f"{label + ':':13} "
    print(
        textwrap.fill(str(text), 86, initial_indent=indent, subsequent_indent=" " * 14)
    )
