"""Code that an agent file or a flag names: `module:name`, or `path/file.py:name` for a flag."""

from collections.abc import Sequence
from typing import Final

from turnwright.context import AppCode, GuardrailBase, HooksBase
from turnwright.errors import ConfigError
from turnwright.tools.errors import describe
from turnwright.tools.load import load_module

from .front_matter import FrontMatter

_KINDS: Final[dict[str, type[AppCode]]] = {"hooks": HooksBase, "guardrails": GuardrailBase}
_FORM: Final = "must be a name such as myapp.policy:cap, of a module and of what it has"


def named(spec: str, kind: type[AppCode]) -> AppCode:
    """Import what `module:name` names: an object of this kind, or a class of it without arguments.

    The module is found in the working directory too. Raises `ConfigError` for another name, for a module that cannot be
    imported, and for another object.
    """
    found = _imported(spec, kind)
    if not isinstance(found, kind):
        what = "hook" if kind is HooksBase else "guardrail"
        raise ConfigError(f"is no {what}, but {found!r:.60}")
    return found


def _imported(spec: str, kind: type[AppCode] | None = None) -> object:
    """Import what `module:name` names; a class of this kind is called. Raises `ConfigError`."""
    module, colon, name = spec.partition(":")
    if not (colon and module.replace(".", "_").isidentifier() and name.replace(".", "_").isidentifier()):
        raise ConfigError(_FORM)
    try:
        found: object = load_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        if kind is not None and isinstance(found, type) and issubclass(found, kind):
            found = found()
    except Exception as error:
        said = str(error) if isinstance(error, ConfigError) else describe(error)
        raise ConfigError(f"cannot be imported: {said}") from error
    return found


def _resolve_function(matter: FrontMatter, values: dict[str, object], key: str) -> None:
    """Replace the name of a function by the function, or note a mistake."""
    spec = values.pop(key, None)
    if spec is None:
        return
    try:
        found = _imported(spec if isinstance(spec, str) else "")
    except ConfigError as error:
        matter.wrong((key,), str(error))
        return
    if callable(found):
        values[key] = found
    else:
        matter.wrong((key,), f"is no function, but {found!r:.60}")


def resolve_code(matter: FrontMatter, values: dict[str, object]) -> None:
    """Replace the names of code in the values of a front matter by the code, or note mistakes."""
    _resolve_function(matter, values, "prepare_tools")
    for key, kind in _KINDS.items():
        given = values.get(key)
        if given is None:
            values.pop(key, None)
            continue
        specs: Sequence[object] = [one.strip() for one in given.split(",")] if isinstance(given, str) else given  # type: ignore[assignment]  # checked below
        if not isinstance(specs, list):
            matter.wrong((key,), f"must be a list of names such as [myapp.policy:{key[:-1]}]")
            values.pop(key)
            continue
        found: list[AppCode] = []
        for place, spec in enumerate(specs):
            try:
                found.append(named(spec if isinstance(spec, str) else "", kind))
            except ConfigError as error:
                matter.wrong((key, place), str(error))
        values[key] = found


def code_of(spec: str) -> list[AppCode]:
    """Return the hooks and guardrails of `module`, or the one of `module:name`. `path/file.py` is a module too.

    Raises `ConfigError` for a module that cannot be loaded, for one without any, and for another name.
    """
    module, _, name = spec.rpartition(":") if not spec.endswith(".py") and ":" in spec else (spec, "", "")
    found = vars(load_module(module))
    if name:
        if not isinstance(found.get(name), AppCode):
            raise ConfigError(f"--hooks {spec}: {module} has no hook and no guardrail {name!r}")
        return [found[name]]
    every = [one for one in found.values() if isinstance(one, AppCode)]
    if not every:
        raise ConfigError(
            f"--hooks {spec}: {module} has no hooks and no guardrails: decorate functions, as with @before_tool"
        )
    return list(dict.fromkeys(every))
