"""The views of the pages, computed from journals."""
