"""Stand-ins of tools whose behavior is chosen."""

from collections.abc import Mapping
from typing import Final

from turnwright.tools import Tool, ToolContext
from turnwright_states import InterruptKind
from turnwright_testing.behavior import Asks, Behavior, Execution, Floods, Hangs, Raises, Returns, Stage, StandIn, Waits

from .choices import Surroundings

#: Returns, raises, raises for the model, hangs, floods, asks for approval, asks a question, or has its result come
#: from outside.
_KINDS: Final = (10, 2, 1, 3, 1, 3, 2, 3)
_HANGS: Final = (1.0, 0.01, 20.0)
_EXPIRES: Final = (None, None, 5.0)


class SimulatedStage(Stage):
    """Chooses the behavior of each call when it first comes up."""

    def __init__(self, world: Surroundings) -> None:
        super().__init__()
        self.world = world

    def tool(self, real: Tool, process: str) -> Tool:
        """Return the stand-in of a process for a tool."""
        return _SimulatedTool(real, self, process)

    def choose(self, place: int) -> Behavior:  # noqa: ARG002, PLR0911 (whatever the place is; a case a kind: flat)
        choices = self.world.choices
        match choices.weighted("tool", _KINDS):
            case 1:
                return Raises()
            case 2:
                return Raises("ToolError")
            case 3:
                return Hangs(choices.of("tool", _HANGS))
            case 4:
                return Floods()
            case 5:
                return Asks(InterruptKind.APPROVAL, expires_in=choices.of("tool", _EXPIRES))
            case 6:
                midway = choices.one_in("tool", 2)
                return Asks(InterruptKind.QUESTION, 1 + choices.below("tool", 2), midway=midway)
            case 7:
                return Waits(choices.of("tool", _EXPIRES))
            case _:
                return Returns()


class _SimulatedTool(StandIn):
    def __init__(self, real: Tool, stage: SimulatedStage, process: str) -> None:
        super().__init__(real, stage)
        self._world = stage.world
        self._process = process
        if real.read_only:  # its calls start with their reply
            self.read_only, self.never_asks = True, real.never_asks

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
        """See `StandIn.execute`. It takes a chosen time."""
        execution = Execution(context.turn_id, context.call_id, self.name, context.attempt)
        self._world.executed(self._process, execution)
        if isinstance(self._stage.behaviour(context), Waits):
            self._world.submitted(execution)
        result = await super().execute(values, context)
        await self._world.pause("tool time")
        return result
