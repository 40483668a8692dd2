"""Certified k-means with hard pairs: ``python benchmarks/certificates.py FOLDER``.

FOLDER is a clone of https://github.com/antoniosudoso/pc-sos-sdp (GPL-3): points of five sets, and
30 files of pairs for each. A row has the best objective of `SEARCHES` searches, the excess of the
worst of them and of 20 starts of COP-KMeans, and the gap after the given seconds of processor time.
With ``--out FILE.csv`` rows are kept, and a later call makes the missing ones.
"""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd

from inference_lab.certificates.hg_means import search
from inference_lab.certificates.pair_branching import prove
from inference_lab.certificates.partition_problem import partition_problem
from inference_lab.clustering import COPKMeans
from inference_lab.clustering.certificate import PROVED

#: Numbers of clusters, as in the tables of Piccialli, Russo Russo and Sudoso (2022).
CLUSTERS = {"iris": 3, "wine": 3, "seeds": 3, "glass": 6, "ecoli": 8}
SEARCHES = 5


def row_of(points: np.ndarray, k: int, file: Path, seconds: float) -> dict[str, Any]:
    """Return the figures of search and certificate for a file of pairs."""
    lines = [line.split() for line in file.read_text().splitlines() if line.strip()]
    pairs = {
        kind: np.array([line[1:] for line in lines if line[0] == kind], dtype=np.int64)
        for kind in ("ML", "CL")
    }
    must, cannot = (pairs[kind].reshape(-1, 2) for kind in ("ML", "CL"))
    hard = [np.full(len(links), np.inf) for links in (must, cannot)]
    problem = partition_problem(points, k, must, hard[0], cannot, hard[1])
    since = process_time()
    labellings = [search(problem, np.random.default_rng(seed)) for seed in range(SEARCHES)]
    took = (process_time() - since) / SEARCHES
    values = [problem.objective(labels) for labels in labellings]
    best = min(values)
    starts = COPKMeans(k, n_init=20, max_failures=100, random_state=0)
    starts.fit(points, must_link=must, cannot_link=cannot)
    since = process_time()
    proof = prove(
        problem,
        labellings[0],
        np.random.default_rng(0),
        tolerance=PROVED,
        max_nodes=10_000,
        expired=lambda: process_time() - since > seconds,
    )
    return {
        "set": file.parent.name,
        "pairs": file.stem,
        "objective": min(best, proof.objective),
        "search worst %": 100.0 * (max(values) / best - 1.0),
        "search s": took,
        "COP-KMeans %": 100.0 * (starts.objective_ / best - 1.0) if starts.feasible_ else np.nan,
        "gap %": 100.0 * problem.gap(proof.objective, proof.lower_bound),
        "nodes": proof.nodes,
        "proof s": process_time() - since,
    }


def main() -> None:
    """Make the missing rows, and print a summary of each set."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+", choices=CLUSTERS, default=list(CLUSTERS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    resumed = options.out is not None and options.out.exists()
    rows = pd.read_csv(options.out).to_dict("records") if resumed else []
    done = {(row["set"], row["pairs"]) for row in rows}
    for name in options.sets:
        with zipfile.ZipFile(options.folder / "datasets" / f"{name}.zip") as archive:
            inside = next(member for member in archive.namelist() if member.endswith(f"{name}.txt"))
            points = np.loadtxt(archive.open(inside), skiprows=1)
        for file in sorted((options.folder / "constraints" / name).glob("*.txt")):
            if (name, file.stem) in done:
                continue
            rows.append(row_of(points, CLUSTERS[name], file, options.seconds))
            print(pd.DataFrame(rows[-1:]).to_string(index=False, header=False), flush=True)
            if options.out is not None:
                pd.DataFrame(rows).to_csv(options.out, index=False)
    figures = pd.DataFrame(rows)
    figures["proved"] = figures["gap %"] <= 100.0 * PROVED
    columns = ["search worst %", "search s", "COP-KMeans %", "gap %", "nodes", "proof s"]
    table = figures.groupby("set", sort=False)[columns].median()
    table.insert(0, "proved", figures.groupby("set", sort=False)["proved"].sum())
    table.insert(0, "files", figures.groupby("set", sort=False).size())
    table["worst gap %"] = figures.groupby("set", sort=False)["gap %"].max()
    print(table.to_string(float_format="{:.3g}".format))


if __name__ == "__main__":
    main()
