"""A keyword that does not exist: the error names the one that was probably meant."""

from collections.abc import Callable

import pytest

from turnwright import Engine, tool
from turnwright.errors import ConfigError
from turnwright.model.model_settings import parsed_settings
from turnwright.tools import Tool


def act() -> None: ...


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Engine(llm=None), "Engine: llm is unknown: did you mean `model`?"),  # type: ignore[call-overload]
        (lambda: Engine(storge="memory:"), "Engine: storge is unknown: did you mean `store`?"),  # type: ignore[call-overload]
        (lambda: Engine(max_turns=3), "Engine: max_turns is unknown: did you mean `limits=Limits(steps=...)`?"),  # type: ignore[call-overload]
        (lambda: Engine(temperature=0), "Engine: temperature is unknown: did you mean `model_settings`?"),  # type: ignore[call-overload]
        (lambda: Engine(steps=3), "Engine: steps is unknown: did you mean `limits=Limits(steps=...)`?"),  # type: ignore[call-overload]
        (lambda: Engine(zzz=3), "Engine: zzz is unknown: use one of deps, deps_type, agents, tools, hooks"),  # type: ignore[call-overload]
        (lambda: tool(timout=3)(act), "tool act: timout is unknown: did you mean `timeout`?"),  # type: ignore[call-overload]
        (lambda: tool(approval=True)(act), "tool act: approval is unknown: did you mean `needs_approval`?"),  # type: ignore[call-overload]
        (lambda: tool(readonly=True)(act), "tool act: readonly is unknown: did you mean `read_only`?"),  # type: ignore[call-overload]
    ],
)
def test_unknown_option_error_suggests_the_meant_option(make: Callable[[], Tool | Engine], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert isinstance(caught.value, TypeError)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("reasoning_effort", "thinking"), ("stop", "stop_sequences"), ("max_output_tokens", "max_tokens")],
)
def test_option_named_as_providers_name_a_setting_suggests_our_name(name: str, suggestion: str) -> None:
    with pytest.raises(ConfigError, match=f"--setting: {name}: is unknown: did you mean `{suggestion}`"):
        parsed_settings({name: 1}, "--setting")
