"""The version of the numbers: part of the identity of every run."""

from __future__ import annotations

NUMERICS = 10
"""Raise it by one in every change that alters numbers: a kernel, a random stream, a measure, the
default of a setting (identities leave defaults out). Runs of another version can be opened, but
are neither continued nor sampled nor used as results of this version."""
