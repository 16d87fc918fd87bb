"""The bounds of a turn in a loop that you have: a client's, or a framework's.

`GuardedLoop` is for a loop around a client. Each framework has a module that imports it: `langchain`, `pydantic_ai`,
`openai_agents`.
"""

from .loop import GuardedLoop, LoopCall
from .turn import Ending

__all__ = ["Ending", "GuardedLoop", "LoopCall"]
