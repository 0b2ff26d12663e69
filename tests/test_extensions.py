"""Extensions as text: parameter values and source in it, the same object in every process."""

from __future__ import annotations

import importlib
import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest

from thermoloom.errors import UserError
from thermoloom.extensions import Extensible
from thermoloom.sections import Section

POTENTIAL = Extensible("onsite potential", ("energy", "gradient"))
MODULE = """
import numpy as np
from dataclasses import dataclass
from typing import NamedTuple

class Plain:
    def __init__(self, depth, table=(1, 2)):
        self.depth, self.table = depth, np.asarray(table, float)
        self.derived = 2 * depth
    def energy(self, x): return self.depth * x**2
    def gradient(self, x): return self.derived * x

@dataclass
class Data:
    depth: float = 1.0
    name: str = "x"
    energy = gradient = lambda self, x: x

class Tuple(NamedTuple):
    depth: float
    def energy(self, x): return x
    def gradient(self, x): return x

class Hidden(Plain):
    def __init__(self, function):
        self._function = function

class Changed(Data):
    pass

deep = Hidden(np.sin)
"""


@dataclass(frozen=True)
class Table(Section):
    section: ClassVar[str] = "table"

    onsite: Annotated[Any, POTENTIAL] = "quartic"


@pytest.fixture
def wells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "wells.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("wells")
    sys.modules.pop("wells", None)


def test_built_in_names_stay(wells: Any) -> None:
    assert Table().onsite == Table(onsite="quartic").onsite == "quartic"


@pytest.mark.parametrize(
    ("expression", "arguments"),
    [
        ("Plain(1.5)", "(depth=1.5, table=array([1.0, 2.0]))"),
        ("Data(np.float64(2), 'deep well')", "(depth=2.0, name='deep well')"),
        ("Data", "(depth=1.0, name='x')"),
        ("Tuple(3)", "(depth=3)"),
    ],
)
def test_an_object_becomes_its_text_and_back(wells: Any, expression: str, arguments: str) -> None:
    extension = eval(expression, vars(wells))
    table = Table(onsite=extension)
    text, _, source = table.onsite.partition("@")
    assert text == f"wells:{expression.partition('(')[0]}{arguments}"
    assert len(source) == 12
    assert table == Table(onsite=table.onsite) == Table(onsite=text)
    assert hash(table)
    restored = POTENTIAL.object("onsite", table.onsite)
    expected = extension() if isinstance(extension, type) else extension
    np.testing.assert_equal(restored.gradient(0.5), expected.gradient(0.5))


def test_what_was_written_counts_and_not_what_became_of_the_object(wells: Any) -> None:
    plain = wells.Plain(1.0)
    table = Table(onsite=plain)
    plain.depth = 7.0
    assert POTENTIAL.object("onsite", table.onsite).depth == 1.0
    assert Table(onsite=plain) != table


def test_an_object_with_other_state_belongs_to_this_process(wells: Any) -> None:
    local = wells.Hidden(lambda x: x)
    table = Table(onsite=local)
    assert table == Table(onsite=local) != Table(onsite=wells.Hidden(lambda x: x))
    assert POTENTIAL.object("onsite", table.onsite) is local
    altered = wells.Data()
    altered.extra = 1
    assert "#" in Table(onsite=altered).onsite
    assert "#" not in Table(onsite="wells:deep").onsite


def in_another_process(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr.strip().rpartition("\n")[2]


def test_another_process_restores_the_same_or_says_why_not(wells: Any, tmp_path: Path) -> None:
    texts = [Table(onsite=each).onsite for each in (wells.Plain(0.25), wells.Hidden(np.cos))]
    main = f"__main__:Data(depth=1.0)@{'0' * 12}"
    code = (
        "from thermoloom.extensions import Extensible, UserError\n"
        f"kind = {POTENTIAL!r}\n"
        f"for text in {[*texts, main]!r}:\n"
        "    try: print(kind.text('machine.onsite', text) == text)\n"
        "    except UserError as error: print(error)\n"
    )
    same, local, notebook = in_another_process(code, tmp_path).splitlines()
    assert same == "True"
    assert "exists only in the process that made it; define it in a module" in local
    assert f"machine.onsite = '{main}': exists only in the process that made it" in notebook
    (tmp_path / "wells.py").write_text(MODULE + "# edited\n", encoding="utf-8")
    changed, *_ = in_another_process(code, tmp_path).splitlines()
    assert "machine.onsite: needs wells:Plain with source @" in changed
    assert "changed" in changed
    (tmp_path / "wells.py").unlink()
    missing, *_ = in_another_process(code, tmp_path).splitlines()
    assert "needs the onsite potential of the module wells, but there is no module" in missing


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "not an onsite potential; it needs energy and gradient"),
        (lambda x: x, "has no energy and no gradient"),
        ("wells:Plain", "Plain refuses its arguments"),
        ("wells:Plain(open('x'))", "arguments must be numbers, strings or lists"),
        ("wells:deep(1)", "only classes take arguments"),
        ("wells:Nothing", "which does not exist here"),
        ("os:system('true')", "not an onsite potential"),
        ("subprocess:Popen(['true'])", "not an onsite potential"),
        ("no_such_module:X", "there is no module no_such_module"),
        ("wells:Plain(1.0", "expected module:object"),
    ],
)
def test_bad_extensions_are_refused_in_one_line(wells: Any, value: object, message: str) -> None:
    with pytest.raises(UserError, match=r"table\.onsite") as caught:
        Table(onsite=value)
    assert message in str(caught.value)


# --- computers and workers ------------------------------------------------------------------------

WELL = """
class Well:
    def __init__(self, stiffness): self.stiffness = stiffness
    def energy(self, x): return self.stiffness / 2 * x * x
    def gradient(self, x): return self.stiffness * x
"""


def heat_of(file: str) -> float:
    """Heat of a saved computer, in whatever process this is called."""
    import thermoloom as tl

    return float(tl.load(file).generate(2).heat.sum())


def test_a_saved_computer_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import thermoloom as tl

    monkeypatch.setenv("THERMOLOOM_ENGINE", "portable")
    (tmp_path / "own_well.py").write_text(WELL, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    well = importlib.import_module("own_well").Well(2.0)
    machine = tl.Machine(
        visible=9, hidden=0, wiring=["visible-visible"], duration=0.05, onsite=well
    )
    computer, file = machine.solve(tl.digits(0, 1), resize=True), tmp_path / "c.safetensors"
    computer.save(file)
    expected = computer.generate(2).heat.sum()
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            assert pool.submit(heat_of, str(file)).result() == expected
    code = (
        "import thermoloom as tl\ntry: tl.load('c.safetensors')\nexcept tl.UserError as e: print(e)"
    )
    (tmp_path / "own_well.py").write_text(WELL.replace("/ 2", "* 0.5"), encoding="utf-8")
    assert "its source has changed" in in_another_process(code, tmp_path)
    (tmp_path / "own_well.py").unlink()
    said = in_another_process(code, tmp_path)
    assert "there is no module own_well" in said
    assert "damaged" not in said
    assert "c.safetensors" in said
    sys.modules.pop("own_well", None)


class OfThisProcess:
    def energy(self, x: Any) -> Any:
        return x * x

    def gradient(self, x: Any) -> Any:
        return 2 * x


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Dask's own connections
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_dask_workers_refuse_what_belongs_to_a_notebook() -> None:
    distributed = pytest.importorskip("distributed", reason="extra cluster is not installed")
    local = Table(onsite=type("Notebook", (OfThisProcess,), {"__module__": "__main__"})()).onsite

    def restore(text: str) -> str:
        try:
            return str(POTENTIAL.object("machine.onsite", text))
        except UserError as error:
            return str(error)

    cluster = distributed.Client(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", timeout="90s"
    )
    with cluster as client:
        said = client.submit(restore, local).result()
    assert "exists only in the process that made it" in said
