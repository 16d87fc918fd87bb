"""Hooks and guardrails: functions of the app that change the course of a turn. Import them from `turnwright`."""
