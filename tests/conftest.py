"""The smallest scenario as fixtures; machines of every wiring are in ``machines``."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from machines import MACHINES, some_fields

from thermoloom.machine.machine import Machine
from thermoloom.presentation.style import STYLE

os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
"""At the size of tests, JAX compiles for longer than it computes."""

STYLE["pdf.fonttype"] = 3
"""Fonts take most of the time of a PDF; ``test_figures`` draws with the fonts that users get."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--wheel", action="store_true", help="also build and install the wheel")


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Handle signals as in a fresh process in the foreground.

    A command ignores signals once it ends, and so do background jobs of a shell; processes that
    tests start would inherit this.
    """
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    for signum, handler in usual.items():
        signal.signal(signum, handler)
    yield
    for signum, handler in usual.items():
        signal.signal(signum, handler)


@pytest.fixture
def small() -> Machine:
    """Twelve visible and eight hidden units, two hundred steps."""
    return MACHINES["paper"]


@pytest.fixture
def fields(small: Machine) -> np.ndarray:
    """Fields of three patterns."""
    return some_fields(small)


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network in place of Inception: a convolution, a rectifier, the mean of each part."""
    onnx = pytest.importorskip("onnx", reason="onnx is an extra")
    helper = onnx.helper
    weights = np.random.default_rng(3).normal(size=(8, 3, 9, 9)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[9, 9], strides=[24, 24]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["pool"]),
    ]
    value, float32 = helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "stand-in", [value("x", float32, ["n", 3, 256, 256])],
        [value("pool", float32, ["n", 8, 1, 1])], [onnx.numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    path = tmp_path_factory.mktemp("network") / "stand-in.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    )
    return path
