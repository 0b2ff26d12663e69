"""``tl.engine``: choose the engine that computes, in a ``with`` block or for all later calls."""

from __future__ import annotations

import os
from typing import Any

from thermoloom.engine_choice import OWN_ENGINE, VARIABLE, EngineSettings, use_engine
from thermoloom.engines import Engine
from thermoloom.engines import engine as engine_in_use


class engine:
    """Choose the engine that computes, in this process and in its workers.

    Without a choice the compiled engine computes, in float32 on the CPU. The portable engine runs
    on NumPy, PyTorch or JAX, in either precision, and on GPUs.

        choice      text such as "compiled" or "portable:torch:cuda", or your own engine: an object
                    with the methods of thermoloom.engines.Engine

    The parts of such a text can also be named one by one:

        name        "portable" (default) or "compiled"
        library     "numpy" (default), "torch" or "jax", for the portable engine
        device      "cpu" (default), "cuda", "cuda:1", … of this library
        precision   "float32" (default) or "float64", for the portable engine

    The choice applies to all later calls or, in a ``with`` statement, to its block.

    >>> import thermoloom as tl
    >>> with tl.engine(name="portable", precision="float64") as portable:
    ...     print(portable.library.real)
    <class 'numpy.float64'>
    """

    def __init__(self, choice: Any = "", **settings: str) -> None:
        self.before = os.environ.get(VARIABLE)
        if isinstance(choice, EngineSettings):
            settings_of_engine = choice
        elif choice and isinstance(choice, str) and not settings:
            settings_of_engine = EngineSettings.from_text(choice)
        elif choice:
            settings_of_engine = EngineSettings(name=OWN_ENGINE.text("engine", choice), **settings)
        else:
            settings_of_engine = EngineSettings(**{"name": "portable"} | settings)
        use_engine(settings_of_engine)
        try:
            self.engine: Engine = engine_in_use()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Engine:
        return self.engine

    def __exit__(self, *_: object) -> None:
        if self.before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = self.before
