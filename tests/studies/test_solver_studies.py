"""Studies of solvers: definitions are read strictly, runs resumed, reports made from records."""

from __future__ import annotations

import json
import math
import shutil

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from places import DATA
from rendered import REPORTS, recorded

from inference_lab.cli import main
from inference_lab.registry.sources import problem_registry
from inference_lab.reporting.comparison import Comparison
from inference_lab.reporting.report import report_document
from inference_lab.results.records import RecordStore
from inference_lab.studies import (
    SolverStudy,
    StudyError,
    find_study,
    load_study,
    render_comparison,
    run_comparison,
)
from inference_lab.studies.discovery import available_studies

SMALL = """
title = "A small study"
question = "Which one?"
answer = "This one."
notes = ["It is small."]
solvers = ["icm", "trw-s", "brute-force"]
problems = ["potts-grid(height=2, width=2)"]
seeds = 2
time_limit = 5.0
classes = "data"

[[grids]]
problem = "estep(data={data}, constraints={constraints}, noise={noise})"
values = { data = ["iris"], constraints = [5, 20], noise = [0.0, 0.2] }

[[contrasts]]
name = "all labellings against one at a time"
metric = "primal_gap"
solver = "brute-force"
baseline = "icm"
primary = true

[labels]
icm = "ICM"
brute-force = "All"

[quick]
solvers = ["icm"]
seeds = 1
values = { noise = [0.2] }
"""


SAMPLED = """
title = "A sample"
question = "Which one?"
solvers = ["icm", "lp-relaxation"]
time_limit = 5.0
clock = "cpu"
trace_limit = 3

[[stages]]
solvers = ["ilp"]
unsolved_by = ["lp-relaxation"]
time_limit = 10.0

[[designs]]
problem = "potts-grid(height={n}, width={n}, frustration={share}, coupling={j}, seed={draw})"
values = { n = [2, 4], share = [0, 0.3, 1], j = { from = 0.1, to = 10.0, log = true } }
cells = 12
draws = 2
block = "n"

[quick]
cells = 2
draws = 1
time_limit = 1.0
values = { n = [4] }
"""


def write(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(text)
    return folder


def test_grids_are_all_combinations(tmp_path):
    study = load_study(write(tmp_path / "small", SMALL))
    assert isinstance(study, SolverStudy) and study.name == "small"
    assert study.all_problems() == [
        "potts-grid(height=2, width=2)",
        "estep(data=iris, constraints=5, noise=0.0)",
        "estep(data=iris, constraints=5, noise=0.2)",
        "estep(data=iris, constraints=20, noise=0.0)",
        "estep(data=iris, constraints=20, noise=0.2)",
    ]
    quick = study.quickly()
    assert quick.labels == {"icm": "ICM"}
    assert quick.solvers == ["icm"] and quick.seeds == 1 and len(quick.all_problems()) == 3


#: Definitions, and for each of them replacements that make it wrong, with the message.
WRONG = {
    SMALL: [
        ("seeds = 2", "seeds = 0", "`int` >= 1 - at `$.seeds`"),
        ("seeds = 2", 'seeds = "two"', "seeds"),
        ("seeds = 2", "seeds = [1, -1]", "`int` >= 0 - at `$.seeds[1]`"),
        ("seeds = 2", "sedes = 2", "unknown field `sedes`"),
        ("time_limit = 5.0", "time_limit = 0", "`$.time_limit`"),
        ("time_limit = 5.0", "", "missing required field `time_limit`"),
        ('"trw-s"', '"icm"', "'icm' more than once"),
        ('solvers = ["icm", "trw-s", "brute-force"]', "solvers = []", "solvers must not be empty"),
        ("{noise}", "{nose}", "'noise' is not in the problem"),
        ("{noise}", "{noise.real}", "is not a name in braces"),
        ("{noise}", "{noise!r}", "is not a name in braces"),
        ("{noise}", "{noise:5}", "is not a name in braces"),
        ("{noise}", "{noise", "grids"),
        (
            "noise = [0.0, 0.2] }",
            "noise = 0.2 }",
            "Expected `array`, got `float` - at `$.grids[0].values[...]`",
        ),
        ("noise = [0.0, 0.2] }", "noise = [[1]] }", "`$.grids[0].values[...][0]`"),
        ("values = { noise = [0.2] }", "values = { size = [2] }", "quick.values.size is in no"),
        ('solvers = ["icm"]\n', 'solvers = ["ilp"]\n', "quick.solvers names 'ilp'"),
        ("[quick]", "[quick]\njobs = 2", "unknown field `jobs` - at `$.quick`"),
        ('baseline = "icm"', 'baseline = "icn"', "contrasts[0]: baseline 'icn' is none of"),
        ("primary = true", "margin = -1", "`float` >= 0.0 - at `$.contrasts[0].margin`"),
        (
            "primary = true",
            'over = ["a", "b", "c", "d"]',
            "of length <= 3 - at `$.contrasts[0].over`",
        ),
        ("primary = true", 'breaks = { a = "x" }', "got `str` - at `$.contrasts[0].breaks[...]`"),
        ("primary = true", "primry = true", "unknown field `primry` - at `$.contrasts[0]`"),
        ('icm = "ICM"', 'icn = "ICM"', "labels names 'icn'; did you mean 'icm'?"),
        ('icm = "ICM"', "icm = 1", "Expected `str`, got `int` - at `$.labels[...]`"),
        ('"All"', '"ICM"', "labels must differ, got ICM, trw-s, ICM"),
    ],
    SAMPLED: [
        ("cells = 12", "cells = 1", "designs[0].cells must be at least 1 a block, 2, got 1"),
        ("draws = 2", "draws = 0", "`int` >= 1 - at `$.designs[0].draws`"),
        ('block = "n"', 'block = "j"', "block = 'j'; allowed: a name of the values"),
        ("from = 0.1", "from = 0", "a range is such as {from"),
        ("seed={draw}", "seed=0", "designs[0].values: 'draw' is not in the problem"),
        ('unsolved_by = ["lp-relaxation"]', 'unsolved_by = ["lp"]', "stages[0].unsolved_by names"),
        ("time_limit = 10.0", "time_limit = 0", "`float` > 0.0 - at `$.stages[0].time_limit`"),
        ('solvers = ["ilp"]', 'solvers = ["icm"]', "solvers has 'icm' more than once"),
        ('clock = "cpu"', 'clock = "sun"', "Invalid enum value 'sun' - at `$.clock`"),
        ("trace_limit = 3", "trace_limit = 1", "`int` >= 2 - at `$.trace_limit`"),
        ("cells = 2\n", "cells = 2.5\n", "Expected `int`, got `float` - at `$.quick.cells`"),
    ],
}


@pytest.mark.parametrize(
    ("text", "old", "new", "message"), [(text, *row) for text in WRONG for row in WRONG[text]]
)
def test_errors_in_a_definition_are_located(tmp_path, text, old, new, message):
    assert old in text
    with pytest.raises(StudyError) as caught:
        load_study(write(tmp_path / "bad", text.replace(old, new, 1)))
    assert message in str(caught.value) and "study.toml" in str(caught.value)


def test_a_study_is_run_once_and_rendered_from_its_records(tmp_path, undrawn, unforked):
    folder = write(tmp_path / "small", SMALL)
    study = load_study(folder)
    comparison = run_comparison(study, folder)
    assert len(comparison) == 5 * 3 * 2
    document = render_comparison(study, comparison, folder)
    page = (folder / "README.md").read_text()
    assert page.startswith("# A small study") and "This one." in page and "It is small." in page
    assert "| All |" in page and "| brute-force |" not in page.replace("| All | brute-force |", "")
    assert (folder / "index.html").is_file() and document.alarms == ()
    again = run_comparison(study, folder, jobs=0)
    assert sorted(r.id for r in again.records) == sorted(r.id for r in comparison.records)
    other = tmp_path / "other"
    render_comparison(study, again, other)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in ("study.toml", "runs.jsonl"):
            assert (other / path.relative_to(folder)).read_bytes() == path.read_bytes(), path
    quick = run_comparison(study.quickly(), folder)
    # The quick form does not have both of its methods.
    assert study.contrasts[0].primary and study.quickly().contrasts == []
    (contrasts,) = (t for t in document.tables() if t.name == "contrasts")
    assert [cell.text for cell in contrasts.rows[0]][-1] == "undecided"
    assert len(quick) == 3 and len(RecordStore(folder / "runs.jsonl").read()) == 30


def test_report_has_only_the_named_tables_and_figures(tmp_path, undrawn, unforked):
    folder = write(tmp_path / "small", SMALL)
    study = load_study(folder)
    comparison = run_comparison(study.quickly(), folder)
    everything = render_comparison(study, comparison, tmp_path / "all")
    names = [b.name for b in everything.blocks() if type(b).__name__ in ("Table", "Picture")]
    tables = [b.name for b in everything.blocks() if type(b).__name__ == "Table"]
    assert len(names) > len(tables) > 1
    text = f"tables = {json.dumps(tables[:1])}\nfigures = []\n" + SMALL.lstrip()
    less = load_study(write(tmp_path / "less", text))
    document = render_comparison(less, comparison, tmp_path / "less")
    assert [b.name for b in document.blocks() if hasattr(b, "name")] == tables[:1]
    # The available names depend on the records; a name of no report is refused at once.
    for key in ("tables", "figures"):
        with pytest.raises(StudyError, match=f"{key} names 'none'; reports have"):
            load_study(write(tmp_path / "wrong", f'{key} = ["none"]\n' + SMALL.lstrip()))


def test_every_block_of_a_report_can_be_named(tmp_path, undrawn):
    """Every block of a real report can be named, and is then included."""
    study, comparison = recorded("estep-regimes")
    problems = {record.problem for record in comparison.records}
    sample = set(sorted(problems)[::20])
    comparison = Comparison(
        [record for record in comparison.records if record.problem in sample],
        labels=comparison.solver_labels,
        stages=comparison.stages,
    )
    everything = render_comparison(
        replace(study, tables=None, figures=None), comparison, tmp_path / "all"
    )
    tables = [table.name for table in everything.tables()]
    figures = [picture.name for picture in everything.pictures()]
    asked = replace(study, tables=tables, figures=figures)
    asked.check()
    assert {"contrasts", "summary", "ranks", "problems"} <= set(tables)


def test_a_study_from_elsewhere_runs_no_code_and_reads_no_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mark = tmp_path / "mark"
    code = f"open({str(mark)!r}, 'w').close()\n"
    for name in ("evil.py", "study/evil.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    for old, new in (
        ('"trw-s"', '"evil.py:X"'),
        ('"trw-s"', '"evil:X"'),
        ('"trw-s"', '"persistency(then=evil.py)"'),
        ("potts-grid(height=2, width=2)", "evil:problems"),
    ):
        write(tmp_path / "study", SMALL.replace(old, new))
        for arguments in ([], ["--render"]):
            done = CliRunner().invoke(main, ["reproduce", "study", *arguments])
            assert done.exit_code == 2, (new, done.output)
        assert not mark.exists()
    write(tmp_path / "study", SMALL.replace('"trw-s"', '"evil.py:X"'))
    done = CliRunner().invoke(main, ["reproduce", "study", "--trust"])
    assert done.exit_code == 2 and mark.exists()


@pytest.mark.parametrize("arguments", [[], ["--trust"]])
def test_paths_in_a_study_are_relative_to_its_folder(tmp_path, monkeypatch, undrawn, arguments):
    monkeypatch.chdir(tmp_path)
    problem = "file(path=models/pair.uai)"
    text = 'title = "T"\nquestion = "Q?"\nsolvers = ["icm"]\ntime_limit = 5.0\n'
    text += f'problems = ["{problem}"]\n'
    folder = write(tmp_path / "study", text)
    (folder / "models").mkdir()
    (folder / "models" / "pair.uai").write_text("MARKOV\n1\n2\n1\n1 0\n\n2\n 1.0 2.0\n")
    done = CliRunner().invoke(main, ["reproduce", "study", "--out", "out", "--quiet", *arguments])
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == "out/index.html"
    (run,) = RecordStore("out/runs.jsonl").read()
    assert run.problem == problem


def test_reproduce_prints_the_page_and_resumes(tmp_path, monkeypatch, undrawn):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "reports" / "small", SMALL)
    done = CliRunner().invoke(main, ["reproduce", "small", "--quick"])
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == "runs/small/index.html" and "[3/3]" in done.stderr
    done = CliRunner().invoke(main, ["reproduce", "small", "--quick", "--quiet"])
    assert done.exit_code == 0 and done.stderr == ""
    done = CliRunner().invoke(main, ["reproduce", "small", "--shard", "1/2", "--quiet"])
    assert done.exit_code == 0
    assert len(RecordStore("reports/small/runs.jsonl").read()) == 15
    done = CliRunner().invoke(main, ["reproduce", "nothing"])
    assert done.exit_code == 2 and "estep-regimes" in done.output
    done = CliRunner().invoke(main, ["reproduce", "small", "--render", "--out", "empty"])
    assert done.exit_code == 2 and "nothing to render" in done.output


# ---------------------------------------------------------------------- samples and stages


def test_a_design_takes_each_value_equally_often(tmp_path):
    study = load_study(write(tmp_path / "sampled", SAMPLED))
    specs = study.all_problems()
    read = [as_problem_settings(spec) for spec in specs]
    assert len(specs) == 24 and sorted(r["seed"] for r in read) == list(range(24))
    for n in (2, 4):
        cells = [r for r in read if r["height"] == n and r["seed"] < 12]
        assert sorted(r["frustration"] for r in cells) == [0, 0, 0.3, 0.3, 1, 1]
        # One in each of six parts of the range, which are equal in the logarithm.
        parts = sorted(math.floor((math.log10(r["coupling"]) + 1) / 2 * 6) for r in cells)
        assert parts == list(range(6))
    # Blocks take turns; the second draws come after all of the first, in the same cells.
    assert [r["height"] for r in read[:4]] == [2, 4, 2, 4]
    for first, second in zip(read[:12], read[12:], strict=True):
        assert {**first, "seed": 0} == {**second, "seed": 0} and second["seed"] == first[
            "seed"
        ] + 12
    assert load_study(tmp_path / "sampled").all_problems() == specs
    # Solved runs of two draws are reused for three.
    more = replace(study, designs=[replace(study.designs[0], draws=3)]).all_problems()
    assert more[:24] == specs and len(more) == 36
    other = replace(study, designs=[replace(study.designs[0], seed=1)])
    assert sorted(other.all_problems()) != sorted(specs)
    assert len(study.quickly().all_problems()) == 2


def as_problem_settings(spec):
    return problem_registry.make(spec).settings()


def test_stages_are_run_where_others_prove_nothing(tmp_path, unforked):
    """The choice follows from the records: a second call makes no run, and shards agree with it."""
    small = SAMPLED.replace("draws = 2", "draws = 1").replace("cells = 12", "cells = 6")
    study = load_study(write(tmp_path / "sampled", small))
    comparison = run_comparison(study, tmp_path / "whole")
    relaxed = [r for r in comparison.records if r.solver == "lp-relaxation"]
    unproved = {r.problem for r in relaxed if r.status != "optimal"}
    strong = [r for r in comparison.records if r.solver == "ilp"]
    assert 0 < len(unproved) < 6 and {r.problem for r in strong} == unproved
    assert {r.time_limit for r in strong} == {10.0} and {r.time_limit for r in relaxed} == {5.0}
    assert {r.clock for r in comparison.records} == {"cpu"}
    assert max(len(r.trace) for r in comparison.records) <= 3
    again = run_comparison(study, tmp_path / "whole")
    assert [r.id for r in again.records] == [r.id for r in comparison.records]
    # Other limits and fewer problems were requested, so they are not a fault of the comparison.
    assert comparison.warnings == []
    named = comparison.labelled({"ilp": "Exact"}).shown
    assert named.warnings == [] and report_document(named, title="T").warnings == ()
    lost = [r for r in comparison.records if r != relaxed[0]]
    [message] = Comparison(lost, stages=[{"ilp"}]).warnings
    assert message == "1 of 12 runs are missing: lp-relaxation (1)"
    assert len(Comparison(comparison.records).warnings) == 2
    # A solver of a stage is thrown away by name, as are others.
    anew = run_comparison(study, tmp_path / "whole", rerun="ilp")
    fresh = {r.id for r in anew.records} - {r.id for r in comparison.records}
    assert {r.solver for r in anew.records if r.id in fresh} == {"ilp"}
    assert len(RecordStore(tmp_path / "whole" / "runs.jsonl").read()) == len(comparison.records)
    with pytest.raises(StudyError, match="rerun must be one of"):
        run_comparison(study, tmp_path / "whole", rerun=["ilp", "icn"])
    for part in ("1/2", "2/2"):
        run_comparison(study, tmp_path / "shards", shard=part)
    parts = RecordStore(tmp_path / "shards" / "runs.jsonl").read()
    assert {r.key for r in parts} == {r.key for r in comparison.records}


# ---------------------------------------------------------------------- what comes with the library


def ours():
    return [
        n for n in available_studies() if isinstance(load_study(find_study(n).folder), SolverStudy)
    ]


def test_the_flagship_comes_with_the_library():
    assert "estep-regimes" in ours() and "bilenko2004" in available_studies()


@pytest.mark.parametrize("name", [n for n in ours() if (REPORTS / n / "README.md").exists()])
def test_reports_are_rendered_from_the_records_beside_them(tmp_path, name, undrawn):
    folder = REPORTS / name
    study, comparison = recorded(name)
    asked = len(study.all_problems()) * len(study.solvers)
    for stage in study.stages:
        asked += len(stage.unsolved_problems(study.all_problems(), comparison.records)) * len(
            stage.solvers
        )
    asked *= study.seeds if isinstance(study.seeds, int) else len(study.seeds)
    assert len(comparison) == asked and comparison.warnings == [] == comparison.alarms
    render_comparison(study, comparison, tmp_path)
    assert (tmp_path / "README.md").read_text() == (folder / "README.md").read_text()
    for table in sorted((folder / "tables").iterdir()):
        assert (tmp_path / "tables" / table.name).read_bytes() == table.read_bytes(), table
    assert {p.name for p in (tmp_path / "figures").glob("*.svg")} == {
        p.name for p in (folder / "figures").glob("*.svg")
    }


@pytest.mark.parametrize("name", ours())
def test_studies_run_in_small(tmp_path, name, unforked):
    if not DATA.is_dir():
        pytest.skip(f"needs the data folder, {DATA} is none")
    study = load_study(REPORTS / name).quickly()
    problems = study.all_problems()[:2]
    stages = [replace(stage, time_limit=0.2) for stage in study.stages]
    alone = replace(study, problems=problems, grids=[], designs=[])
    small = replace(alone, stages=stages, time_limit=0.5)
    comparison = run_comparison(small, tmp_path, data_dir=str(DATA))
    assert isinstance(comparison, Comparison) and comparison.alarms == []
    assert not any(record.failed for record in comparison.records)
    shutil.rmtree(tmp_path)
