"""The values of environment variables, decoded by pydantic-settings. Loaded only if a setting is in the environment."""

from collections.abc import Mapping

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from .settings import Settings


def decoded(variables: Mapping[str, object], prefix: str) -> dict[str, object]:
    """Return the settings, nested, of variables by their names in lower case. `prefix` begins each name."""

    class Sources(BaseSettings, Settings):  # pyright: ignore[reportIncompatibleVariableOverride] (both have a config)
        """The settings for pydantic-settings, which only reads them. `settings.check` validates."""

        model_config = SettingsConfigDict(
            case_sensitive=True, env_prefix=prefix, env_nested_delimiter="__", extra="forbid"
        )

    return _Environment(Sources, variables)()


class _Environment(EnvSettingsSource):
    def __init__(self, sources: type[BaseSettings], variables: Mapping[str, object]) -> None:
        self._variables = variables
        super().__init__(sources)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return dict(self._variables)  # type: ignore[arg-type]  # numbers are decoded already

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: object) -> object:
        """Decode a list or a table from JSON. Anything else stays as it is, for the validation to judge."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except (TypeError, ValueError, RecursionError):
            return value
