"""Experiments: what is visited in which order, by which workers, until when."""
