"""`auto` beside the UAI 2022 competition: ``python benchmarks/uai2022.py FOLDER RECORDS``.

FOLDER is ``uai2014`` of a clone of https://github.com/mroavi/uai, with the instances of the
competition's tuning phase and their results in MAP, PR and MAR; an instance that is missing there
is left out. The printed scores are those of ``map/uai2022/scores.csv`` in the data folder. Each run
has the given seconds of processor time, reading included and compilation excluded; one at
temperature 1 answers PR and MAR. RECORDS is a file of JSON lines; a later call makes the missing
ones. Prints a table by family, and the instances with a score below `WEAK`.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, median
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt

import inference_lab as il
from inference_lab.data.folders import data_folder

WEAK = 98.0
#: Folder of each task's instances.
FOLDERS = {"MPE": "MAP", "PR": "PR", "MAR": "PR"}
#: Families whose printed scores of MAR are unusable, 0 to 8 for solvers whose PR is exact; the row
#: of all families leaves them out.
UNUSABLE = ("Promedus", "Pedigree")
#: Most error of exact marginals, which files give with six digits.
EXACT = 1e-5
#: Processor seconds of the warm-up.
WARM_UP = 0.2


def score(value: float, reference: float, pairs: Iterable[tuple[float, float]]) -> float:
    """Return the score of a value: 100, less its error's share of a trivial solver's error.

    `pairs` are printed (score, value) pairs. Scores of 0 may be cut off, so the lowest above 0
    gives the trivial solver's error. NaN if there is none and the value differs.
    """
    if abs(value - reference) <= 0.05:  # values are printed with one decimal
        return 100.0
    informative = [(s, v) for s, v in pairs if 0.0 < s < 100.0 and math.isfinite(v)]
    if not informative:
        return math.nan
    lowest, far = min(informative)
    largest = abs(far - reference) / (1.0 - lowest / 100.0)
    return max(0.0, 100.0 * (1.0 - abs(value - reference) / largest)) if largest else math.nan


def hellinger(p: Iterable[np.ndarray], q: Iterable[np.ndarray]) -> float:
    """Return the mean Hellinger distance of two lists of distributions."""
    return fmean(
        math.sqrt(0.5 * float(((np.sqrt(a) - np.sqrt(b)) ** 2).sum()))
        for a, b in zip(p, q, strict=True)
    )


def record(folder: Path, task: str, problem: str, seconds: float) -> dict[str, Any]:
    """Solve an instance, and return the values in base 10 and the errors."""
    model = folder / FOLDERS[task] / f"{problem}.uai"
    evidence = model.with_suffix(".uai.evid")
    temperature = 0.0 if task == "MPE" else 1.0

    def solve(limit: float) -> il.Solution:
        since = process_time()
        graph = il.read(model, evidence=evidence)
        remaining_s = max(1e-3, limit - (process_time() - since))
        return il.solve(graph, "auto", temperature=temperature, time_limit=remaining_s, clock="cpu")

    solve(WARM_UP)
    since = process_time()
    s = solve(seconds)
    figures = {
        "task": task,
        "problem": problem,
        "seconds": seconds,
        "cpu_s": process_time() - since,
    }
    if task == "MPE":
        exact = s.status.value == "optimal"
        return figures | {"value": -s.energy / math.log(10.0), "exact": exact}
    assert s.log_partition is not None
    figures |= {
        "value": s.log_partition / math.log(10.0),
        "exact": "log_partition_exact" in s.diagnostics,
    }
    answer = folder / "MAR" / f"{problem}.uai.MAR"
    if answer.exists() and s.marginals is not None:
        observed = [int(word) for word in evidence.read_text().split()]
        seen = set(observed[1 + (len(observed) % 2 == 0) :: 2])
        true = published_marginals(answer)
        free = [i for i in range(len(true)) if i not in seen]
        figures["error"] = hellinger(
            [true[i] for i in free], [s.marginals[i][: true[i].size] for i in free]
        )
        figures["trivial"] = hellinger(
            [true[i] for i in free], [np.full(true[i].size, 1.0 / true[i].size) for i in free]
        )
    return figures


def published_marginals(path: Path) -> list[npt.NDArray[np.float64]]:
    """Return the marginals in a file ``MAR n k p_1 ... p_k k ...``."""
    numbers = list(map(float, path.read_text().split()[1:]))
    rows, at = [], 1
    for _ in range(int(numbers[0])):
        end = at + 1 + int(numbers[at])
        rows.append(np.array(numbers[at + 1 : end]))
        at = end
    return rows


def our_score(folder: Path, task: str, run: dict[str, Any], rows: list[dict[str, str]]) -> float:
    """Return the score of a record for a task, from all printed rows of its instance."""
    if task == "MAR":
        # The trivial solver's marginals are taken as uniform.
        return max(0.0, 100.0 * (1.0 - run["error"] / run["trivial"])) if "error" in run else 0.0
    pairs = [(float(row["score"]), float(row["log10_value"] or "nan")) for row in rows]
    if task == "PR":
        reference = float((folder / "PR" / f"{run['problem']}.uai.PR").read_text().split()[-1])
    elif run["exact"]:
        return 100.0
    else:
        reference = median(v for s, v in pairs if s == 100.0)
        reference = max(reference, run["value"])
    return score(run["value"], reference, pairs)


def main() -> None:
    """Make the missing records, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("records", type=Path)
    parser.add_argument("--tasks", nargs="+", choices=FOLDERS, default=list(FOLDERS))
    parser.add_argument("--only", default="", help="instances whose names begin so")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--data-dir", help="default: $INFERENCE_LAB_DATA")
    options = parser.parse_args()
    data = data_folder(options.data_dir)
    assert data is not None, "--data-dir or $INFERENCE_LAB_DATA"
    printed = defaultdict(list)
    with (data / "map/uai2022/scores.csv").open() as lines:
        for row in csv.DictReader(lines):
            printed[row["task"], row["problem"]].append(row)
    wanted = [
        (task, problem)
        for task, problem in printed
        if task in options.tasks
        and problem.startswith(options.only)
        and (options.folder / FOLDERS[task] / f"{problem}.uai").exists()
    ]
    lines = options.records.read_text().splitlines() if options.records.exists() else []
    runs = {
        (run["task"], run["problem"]): run
        for run in map(json.loads, lines)
        if run["seconds"] == options.seconds
    }
    with options.records.open("a") as out:
        for task, problem in wanted:
            key = ("MPE" if task == "MPE" else "PR", problem)
            if key not in runs:
                runs[key] = record(options.folder, *key, options.seconds)
                print(json.dumps(runs[key]), file=out, flush=True)
    families = defaultdict(list)
    weak = []
    for task, problem in wanted:
        run = runs["MPE" if task == "MPE" else "PR", problem]
        ours = our_score(options.folder, task, run, printed[task, problem])
        family = "Grids" if problem.startswith("grid") else problem.partition("_")[0]
        exact = run.get("error", 1.0) <= EXACT if task == "MAR" else run["exact"]
        if ours < WEAK:
            weak.append(f"{task} {problem}: {ours:.1f} ({run['value']:.2f})")
        theirs = {
            row["solver"]: float(row["score"])
            for row in printed[task, problem]
            if row["limit"] == "20sec"
        }
        usable = task != "MAR" or family not in UNUSABLE
        for group in (family, "all")[: 1 + usable]:
            families[task, group].append((ours, exact, theirs))
    print(
        "| task | family | instances | `auto` | proved or exact | best entrant, 20 s | its score |"
    )
    print("|---|---|---:|---:|---:|---|---:|")
    for (task, family), results in sorted(families.items()):
        means = {
            name: fmean(theirs.get(name, 0.0) for _, _, theirs in results) for name in results[0][2]
        }
        best = max(means, key=lambda name: means[name])
        usable = task != "MAR" or family not in UNUSABLE
        entrant = f"{best} | {means[best]:.1f}" if usable else "scores unusable |"
        ours = f"{fmean(ours for ours, _, _ in results):.1f}"
        exact = sum(exact for _, exact, _ in results)
        print(f"| {task} | {family} | {len(results)} | {ours} | {exact} | {entrant} |")
    print(f"\nbelow {WEAK:g}: " + "; ".join(weak))


if __name__ == "__main__":
    main()
