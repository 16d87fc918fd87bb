"""Configuration: the file, the environment and what they make of an engine."""

from .config import Config, EngineOptions, SettingOrigin, SettingSource, load_config

__all__ = ["Config", "EngineOptions", "SettingOrigin", "SettingSource", "load_config"]
