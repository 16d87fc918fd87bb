"""Settings from configuration files, environment variables, flags and code."""

from .config import Config, EngineOptions, SettingOrigin, SettingSource, load_config

__all__ = ["Config", "EngineOptions", "SettingOrigin", "SettingSource", "load_config"]
