"""The inspector over HTTP: access, addresses, rendering and events."""
