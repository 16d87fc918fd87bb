"""Agents from files, their budgets and the bounds that follow from them."""
