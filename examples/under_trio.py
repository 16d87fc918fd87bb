"""The pure machine under trio: `python examples/under_trio.py` (no network, no key).

Needs trio: `pip install 'turnwright[examples]'`. Tools run side by side in a nursery, and the turn's deadline is
trio's: when it passes, the nursery is canceled. Then the machine closes the calls, and the model concludes. (The whole
engine runs under trio too, with `trio.run(...)`.)
"""

import trio
from msgspec.structs import replace

from turnwright_states import (
    Call,
    CallModel,
    CallSettledInput,
    CallStartedInput,
    Conclude,
    ConcludedInput,
    ExpireInput,
    Halt,
    Input,
    Limits,
    ModelRepliedInput,
    RunTools,
    StartedInput,
    ToolCall,
    TurnMachine,
)


class Loop:
    """Your own loop. `feed` returns the facts for a journal."""

    def __init__(self, limits: Limits) -> None:
        self.machine, facts = TurnMachine.start(StartedInput(prompt="Watch the three feeds", limits=limits))
        self.kinds = [fact.kind for fact in facts]
        self.start = trio.current_time()

    def elapsed(self) -> float:
        """Seconds since the turn began."""
        return trio.current_time() - self.start

    def feed(self, event: Input) -> None:
        """Feed an input with the time."""
        self.kinds += [fact.kind for fact in self.machine.feed(replace(event, elapsed=self.elapsed()))]

    async def run(self) -> Halt:
        """Perform the machine's actions until the turn ends."""
        deadline = self.start + (self.machine.turn.limits.seconds or float("inf"))
        while not isinstance(action := self.machine.action, Halt):
            match action:
                case Conclude():  # the turn's own deadline does not bind it
                    with trio.move_on_after(action.seconds):
                        await trio.lowlevel.checkpoint()  # your provider's client
                        self.feed(ConcludedInput(text="Feeds 1 and 2 said something, 3 was still silent."))
                case CallModel() | RunTools():
                    with trio.move_on_at(deadline) as scope:
                        await self.perform(action)
                    if scope.cancelled_caught:
                        self.feed(ExpireInput())
                case _:
                    raise TypeError(action)
        return action

    async def perform(self, action: CallModel | RunTools) -> None:
        """Call the model, or run the calls side by side."""
        if isinstance(action, CallModel):
            await trio.lowlevel.checkpoint()  # your provider's client
            calls = tuple(ToolCall(name="wait_for", arguments={"feed": feed}) for feed in (1, 2, 3))
            self.feed(ModelRepliedInput(calls=calls))
        else:
            async with trio.open_nursery() as nursery:
                for call in action.calls:
                    nursery.start_soon(self.call, call)

    async def call(self, call: Call) -> None:
        """Wait for a feed. The third is silent for a day."""
        self.feed(CallStartedInput(call=call.id))
        feed = call.arguments["feed"]
        await trio.sleep(86_400 if feed == 3 else 0)  # noqa: PLR2004
        self.feed(CallSettledInput(call=call.id, result=f"feed {feed}: hello"))


async def main() -> None:
    """One turn that runs out of time in the middle of its tools."""
    loop = Loop(Limits(steps=5, seconds=0.05))
    ended = await loop.run()
    print(f"{ended.outcome}, {ended.reason} at {loop.machine.turn.counters.steps} steps")
    print(" ".join(loop.kinds))


if __name__ == "__main__":
    trio.run(main)
