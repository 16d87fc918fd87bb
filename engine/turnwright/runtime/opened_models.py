"""The models of an engine: each is made once, and closed with the engine."""

from collections.abc import Callable

from turnwright.errors import need_plain_function
from turnwright.model.protocol import Model


class OpenedModels:
    """The engine's model, and those that `models` makes by name. Raises `ConfigError` if that is not a function."""

    def __init__(self, model: Model | None, models: Callable[[str], Model] | None) -> None:
        need_plain_function("models", models)
        self._model = model
        self._models = models
        self._by_name: dict[str, Model] = {}

    def get(self, name: str) -> Model:
        """Return the model of that name. Raises what `models` raises."""
        if name not in self._by_name and self._models is not None:
            self._by_name[name] = self._models(name)
        return self._by_name[name]

    async def aclose(self) -> None:
        """Close the connections of each model that has an `aclose`."""
        for model in {id(model): model for model in (self._model, *self._by_name.values())}.values():
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()
