"""Configuration files and environment variables, and the engine that they describe."""

from .config import Config, EngineOptions, SettingOrigin, SettingSource, load_config

__all__ = ["Config", "EngineOptions", "SettingOrigin", "SettingSource", "load_config"]
