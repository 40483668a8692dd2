"""Problem family of model files: where they are searched, and the facts of the problem."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import pytest

from inference_lab.data.folders import DATA_VARIABLE
from inference_lab.io import FormatError
from inference_lab.problems.file import File
from inference_lab.registry.descriptions import available_problems
from inference_lab.registry.sources import as_problem, problem_registry

MODEL = b"MARKOV 2 2 3 2 1 0 2 0 1 2 0.25 0.75 6 1 2 3 4 5 6\n"
OTHER = b"MARKOV 1 2 1 1 0 2 0.5 0.5\n"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Make a working directory and a data folder, with an empty environment."""
    here, data = tmp_path / "here", tmp_path / "data"
    here.mkdir()
    (data / "map").mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    return here, data


def test_graph_and_facts(folders: tuple[Path, Path]) -> None:
    here, _ = folders
    (here / "m.uai").write_bytes(MODEL)
    (here / "m.evid").write_bytes(b"1 1 2\n")
    problem = File("m.uai", "m.evid").build()
    assert problem.name == "file(path=m.uai, evidence=m.evid)"
    assert problem.graph.energy([1, 2]) == pytest.approx(-math.log(0.75 * 6))
    assert problem.graph.energy([1, 1]) == math.inf
    assert dict(problem.info) == {
        "variables": 2,
        "max_labels": 3,
        "edges": 1,
        "higher_order": 0,
        "sha256": hashlib.sha256(MODEL).hexdigest(),
        "evidence_sha256": hashlib.sha256(b"1 1 2\n").hexdigest(),
    }
    assert problem.truth is None
    assert problem.optimum is None


def test_the_working_directory_comes_before_the_data_folder(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, data = folders
    (data / "map" / "m.uai").write_bytes(MODEL)
    assert File("map/m.uai").build(data).graph.n_variables == 2
    monkeypatch.setenv(DATA_VARIABLE, str(data))
    assert File("map/m.uai").build().graph.n_variables == 2
    (here / "map").mkdir()
    (here / "map" / "m.uai").write_bytes(OTHER)
    assert File("map/m.uai").build(data).graph.n_variables == 1
    absolute = str(data / "map" / "m.uai")
    assert File(absolute).build().graph.n_variables == 2


def test_a_missing_file_is_named_with_its_neighbour(folders: tuple[Path, Path]) -> None:
    here, data = folders
    (data / "map" / "pedigree1.uai.gz").write_bytes(b"")
    (here / "mine.uai").write_bytes(MODEL)
    with pytest.raises(FileNotFoundError, match=r"mnie.uai does not exist; did you mean 'mine.uai"):
        File("mnie.uai").build()
    with pytest.raises(FileNotFoundError) as caught:
        File("map/pedigree1.uai").build(data)
    assert "map is not a folder" in str(caught.value)
    assert "did you mean 'pedigree1.uai.gz'?" in str(caught.value)
    with pytest.raises(FileNotFoundError, match=r"lost.evid does not exist"):
        File("mine.uai", "lost.evid").build()
    with pytest.raises(FileNotFoundError, match=r"here is not a file"):
        File(str(here)).build()


def test_a_file_that_is_no_model_is_a_format_error(folders: tuple[Path, Path]) -> None:
    here, _ = folders
    (here / "m.txt").write_bytes(MODEL)
    (here / "m.uai").write_bytes(MODEL[:-10])
    with pytest.raises(FormatError, match="supported"):
        File("m.txt").build()
    with pytest.raises(FormatError, match="the file ends inside the table of factor 1"):
        File("m.uai").build()


def test_names_lead_to_files(folders: tuple[Path, Path]) -> None:
    here, _ = folders
    (here / "a b.uai").write_bytes(MODEL)
    assert "file" in available_problems()
    family = problem_registry.make('file(path="a b.uai")')
    assert family == File("a b.uai")
    by_path = as_problem(here / "a b.uai")
    by_text = as_problem("a b.uai")
    by_spec = as_problem(by_text.name)
    assert by_text.name == 'file(path="a b.uai")'
    assert by_path.graph.content_hash == by_text.graph.content_hash == by_spec.graph.content_hash
