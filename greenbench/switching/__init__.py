"""Processes that take turns on one GPU, as data and arithmetic: plans, setups, figures and rows."""
