"""Hyper-parameter search over the paper's space."""
