"""The pages of the inspector, one module a page."""
