"""What all steps share: a client that plays a model, three tools, and the problems that a loop has to stand.

Nothing here is Turnwright. `python step_0_loop.py` meets every problem that leaves the process alive; `dies` and `asks`
as an argument meet one of them, and `yes` answers, in a new process, what was asked in the one before.
"""

import asyncio
import inspect
import json
import os
import signal
import sys
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
#: Model calls after which somebody looks at the bill.
PLUG: Final = 50
LEDGER: Final = Path("charges.txt")


class PluggedOutError(Exception):
    """Somebody has looked at the bill."""


class BadRequestError(Exception):
    """What a provider answers to messages that are not paired."""


class Client:
    """Stands in for your provider's client. What it says is a function of the messages, as with any model."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.calls = 0

    def chat(self, messages: list[Message], *, tools: bool = True) -> Message:
        """One model call. Raises `BadRequestError`, as providers do, for a call that has no result."""
        self.calls += 1
        if self.calls > PLUG:
            raise PluggedOutError(f"no end after {PLUG} model calls")
        results = [message for message in messages if message["role"] == "tool"]
        answered = {message["tool_call_id"] for message in results}
        for call in (call for message in messages for call in message.get("tool_calls") or ()):
            if call["id"] not in answered:
                raise BadRequestError(f"400: no tool message for tool_call_id {call['id']}")
        if not tools:
            return _says(f"I have {len(results)} results, and am not done.")
        said = max(index for index, message in enumerate(messages) if message["role"] == "user")
        if messages[said]["content"] == "Go on.":
            return _says(f"{results[-1]['content']}.")
        return self._reply([message for message in messages[said:] if message["role"] == "tool"])

    def _reply(self, results: list[Message]) -> Message:  # noqa: PLR0911 (one a problem)
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
    made = [
        {"id": f"id{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for number, (name, arguments) in enumerate(calls, start=done)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def search(page: int) -> str:
    """Read a page of the manual."""
    if page < 1:
        raise ValueError(f"there is no page {page}")
    return f"page {page} says: see page {page + 1}"


def refund(order: int) -> str:
    """Refund an order. A person must approve."""
    return f"order {order} is refunded"


def charge(order: int, key: str = "") -> str:
    """Charge an order, once for each key. The first process that does it dies before it can tell."""
    charged = LEDGER.read_text(encoding="utf-8").splitlines() if LEDGER.exists() else []
    line = f"order {order} {key}".strip()
    if not key or line not in charged:
        with LEDGER.open("a", encoding="utf-8") as ledger:
            ledger.write(line + "\n")
    if not charged:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"order {order} is charged"


class App(Protocol):
    """What each step is. Its methods may be async."""

    def respond(self, messages: list[Message]) -> str | Awaitable[str | None] | None:
        """Answer the last message, which is the user's."""
        ...

    def answer(self) -> str | Awaitable[str | None] | None:
        """A person says yes to what was asked last."""
        ...


@runtime_checkable
class Closing(Protocol):
    """An app that has something to close."""

    async def aclose(self) -> None:
        """Nothing more will be asked."""
        ...


def play(make: Callable[[Client], App]) -> None:
    """Meet the problems with an app, and print what comes of them."""
    asyncio.run(_play(make, sys.argv[1:] or [problem for problem in PROBLEMS if problem != "dies"]))


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
        messages.append({"role": "user", "content": "Go on."})
        await _show("go on", app.respond, messages)
    if problem == "asks" and not alone:
        await _show("answered", app.answer)
    if problem == "dies":
        print(f"{'':13} the ledger has {len(LEDGER.read_text(encoding='utf-8').splitlines())} charge(s)")


async def _show(what: str, act: Callable[..., str | Awaitable[str | None] | None], *given: list[Message]) -> None:
    try:
        said = act(*given)
        text = await said if inspect.isawaitable(said) else said
    except Exception as error:  # noqa: BLE001 (whatever it is, it is what the user gets)
        text = f"{type(error).__name__}: {error}"
    print(f"{what + ':':13} {text}")
