"""The version of the numbers: part of the identity of every run."""

from __future__ import annotations

NUMERICS = 9
"""Raise it by one in every change that alters numbers: a kernel, a random stream, a measure, the
default of a setting (identities leave defaults out). Runs of another number can be looked at, but
are neither continued nor sampled nor taken for results of this version."""
