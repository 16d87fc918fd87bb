"""The solvers of the inductive proof: z3, and cvc5 if it is installed. Both read the same SMT-LIB text."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Final, NamedTuple, Protocol

from turnwright.errors import ConfigError

_INSTALL: Final = "pip install 'turnwright-proof[smt]'"
#: Where a package is found; raises `ImportError`.
Importer = Callable[[str], ModuleType]


class Answer(NamedTuple):
    """The answer of a solver: `sat`, `unsat` or `unknown`, the seconds that it took, and the values if it is `sat`."""

    verdict: str
    seconds: float
    values: Mapping[str, int] = {}


class Solver(Protocol):
    """A solver of SMT-LIB texts."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        ...

    def solve(self, script: str, names: Sequence[str] = ()) -> Answer:
        """Return the answer to a script with one `(check-sat)`, and the values of these names if it is `sat`."""
        ...


def find_solvers(seconds: float, importer: Importer = import_module) -> tuple[Solver, ...]:
    """Return z3, and cvc5 if it is installed. `seconds` is the most for one query.

    Raises `ConfigError` with the command to install them if z3 is missing.
    """
    try:
        first = Z3(importer("z3"), seconds)
    except ImportError:
        raise ConfigError(f"--smt needs the package z3-solver: {_INSTALL}") from None
    try:
        return first, Cvc5(importer("cvc5"), seconds)
    except ImportError:
        return (first,)


class Z3:
    """The solver z3, from the package `z3-solver`."""

    name = "z3"

    def __init__(self, package: ModuleType, seconds: float) -> None:
        self._z3, self._most = package, max(round(1000 * seconds), 1)

    def solve(self, script: str, names: Sequence[str] = ()) -> Answer:
        """See `Solver`."""
        start = time.perf_counter()
        solver = self._z3.Solver()
        solver.set("timeout", self._most)
        solver.from_string(script)
        verdict = str(solver.check())
        took = time.perf_counter() - start
        if verdict != "sat" or not names:
            return Answer(verdict, took)
        model = solver.model()
        # z3 prints terms slowly, and those of `define-fun` are large.
        constants = {declaration.name(): declaration for declaration in model.decls() if declaration.arity() == 0}
        values = {name: str(model[constants[name]]) for name in names if name in constants}
        return Answer(verdict, took, {name: _number(values.get(name, "0")) for name in names})


class Cvc5:
    """The solver cvc5, from the package `cvc5`."""

    name = "cvc5"

    def __init__(self, package: ModuleType, seconds: float) -> None:
        self._cvc5, self._most = package, max(round(1000 * seconds), 1)

    def solve(self, script: str, names: Sequence[str] = ()) -> Answer:
        """See `Solver`."""
        start = time.perf_counter()
        solver = self._cvc5.Solver(self._cvc5.TermManager())
        solver.setOption("tlimit-per", str(self._most))
        if names:
            script = f"(set-option :produce-models true)\n{script}(get-value ({' '.join(names)}))\n"
        parser = self._cvc5.InputParser(solver)
        parser.setStringInput(self._cvc5.InputLanguage.SMT_LIB_2_6, script, "query")
        lines: list[str] = []
        while not (command := parser.nextCommand()).isNull():
            lines.append(str(command.invoke(solver, parser.getSymbolManager())))
            if lines[-1].strip() in ("unsat", "unknown"):
                break
        text = "".join(lines).strip()
        answer, _, tail = text.partition("\n")
        values = {name: _number(value) for name, value in re.findall(r"\((\w+) (\w+|\(- \d+\))\)", tail)}
        return Answer(answer if answer in ("sat", "unsat") else "unknown", time.perf_counter() - start, values)


def _number(text: str) -> int:
    return int(text.lower() == "true") if text.isalpha() else int(re.sub(r"[^\d-]", "", text))
