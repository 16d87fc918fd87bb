"""A failure that a run found, written as a test that fails in the same way."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .python_source import Imports


@dataclass(frozen=True, slots=True)
class FailureOrigin:
    """The Python expressions with which a test builds the agent, its tools and the engine.

    `imported` are the classes and the functions in the expressions. Without `build` it is `Engine`.
    """

    imported: tuple[object, ...]
    agent: str
    tools: str
    build: str = ""

    def names(self, imports: Imports) -> dict[str, str]:
        """Return the expressions by the names that a test gives them, and note what they import."""
        for thing in self.imported:
            imports.name(thing)
        return {"AGENT": self.agent, "TOOLS": self.tools} | ({"BUILD": self.build} if self.build else {})


def failing_test(
    name: str, call: str, names: Mapping[str, str], imports: Imports, *, command: str, notes: Iterable[str]
) -> str:
    """Return a pytest file with the test `name`, which makes one call. `command` found it.

    `names` are the expressions of its constants, and `notes` say in comments what is violated. It needs no Hypothesis.
    Where an expression names files, the test is to be run where the command was.
    """
    return "\n".join(
        [
            *(f"# {note}" for note in notes),  # as comments, because a tool's text could end a docstring
            f"# Found by: {command}",
            "",
            *imports.lines(),
            "",
            *(f"{constant} = {source}" for constant, source in names.items()),
            "",
            "",
            f"def {name}() -> None:",
            f"    {call}",
            "",
        ]
    )
