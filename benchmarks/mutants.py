"""Count how many random mutants of the core the tests kill: ``mutants.py COPY OUT``.

A mutant is the library with one small change: another comparison, sign, constant or connective, or
a negated condition. Each is written into a copy of the checkout with an environment of its own
(COPY, made if missing), and the tests of its module run there; it survives if all pass.
OUT gets a line of JSON a mutant; recorded mutants are not run again. It takes an hour or two.

Mutants are drawn by a hash of the seed, the source line and the change. Lines that two versions of
the library share have the same mutants at any position, so that the counts can be compared.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]

CLASSICAL = ("icm", "brute_force", "mean_field", "trw_s", "lp_relaxation", "loopy_bp")
#: Name, mutants of 200, files, and calls of pytest, cheap ones first. STEM is the name of the file,
#: SPEC the solver's spec, USERS the tests of two solvers that use a kernel.
ROOMS: tuple[tuple[str, int, str, tuple[str, ...]], ...] = (
    ("graph", 50, "inference_lab/graph/*.py", ("tests/graph",)),
    ("kernels", 50, "inference_lab/kernels/*.py", ("tests/kernels", "USERS")),
    *(
        (name, 10, f"solvers/{name}.py", ("tests/solvers/test_STEM.py", "SUITES -k SPEC"))
        for name in CLASSICAL
    ),
    ("records", 15, "inference_lab/results/records.py", ("tests/results/test_records.py",)),
    ("running", 10, "inference_lab/harness/running.py", ("tests/harness/test_harness.py",)),
    ("em", 15, "inference_lab/clustering/em.py", ("EM",)),
)
FILES = {
    "SUITES": "tests/solvers/test_theorems.py tests/solvers/test_solver_conformance.py",
    "EM": "tests/clustering/test_hmrf_kmeans.py tests/clustering/test_annealed.py",
}
#: Graphs drawn for tests: a mutant draws other graphs without being wrong.
LEFT_OUT = ("random_graphs.py",)
#: Tests of speed and of published instances, which are slow or depend on a clock.
SKIPPED = "compilation or time or clock or budget or published or tsukuba or known_optima or second"
#: Not mutated: constants of speed or of the effort of a heuristic, and comparisons with them; calls
#: that change no result; texts for people.
SPEED = frozenset(
    "_FEW _ENERGY_BLOCK _BLOCK _TABLE_BLOCK _SHARE _NEAR _UNDAMPED "
    "_DAMPING _FIRST _FOLLOWED _NOISE _STEPS_PER_SECOND _POLISH_SWEEPS _AFTER_THE_END "
    "_OFFERED _POLISHED _BLOCK_WORK _CHUNK _TIGHTENING_SWEEPS _WALL_SLACK _WALL_CONSTANT "
    "_BUSY_SLACK _WARM_UP_LIMIT _FOREIGN_WARM_UP_LIMIT _SHOWN _STARTS".split()
)
UNSHOWN = frozenset("warn __repr__ __str__ _repr_html_".split())
#: Files whose kernels are compiled into those of others, as in `inference_lab._numba`.
SHARED = ("kernels/*.py", "graph/arrays.py", "graph/traversal.py")
#: Machine code of the mutants, and of the library without a mutant, in the copy.
COMPILED, CLEAN = ".compiled", ".compiled-clean"
#: Processor seconds that a call may take beyond twice the time without a mutant; more if many
#: kernels are compiled anew. After this many wall seconds a call counts as hanging.
SLACK, COMPILING, HANGS = 20.0, 120.0, 1200.0

SWAPS: dict[type, tuple[str, ...]] = {
    **{ast.Lt: ("<", "<=", ">"), ast.LtE: ("<=", "<", ">"), ast.Gt: (">", ">=", "<")},
    **{ast.GtE: (">=", ">", "<"), ast.Eq: ("==", "!="), ast.NotEq: ("!=", "==")},
    **{ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is")},
    **{ast.In: ("in", "not in"), ast.NotIn: ("not in", "in")},
    **{ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")},
    **{
        ast.And: ("and", "or"),
        ast.Or: ("or", "and"),
        ast.BitAnd: ("&", "|"),
        ast.BitOr: ("|", "&"),
    },
}


class Mutant(NamedTuple):
    """Change of a file: a range of bytes and its replacement."""

    rank: str
    path: str
    line: int
    start: int
    stop: int
    new: bytes
    change: str


def is_left_out(node: ast.AST) -> bool:
    """Return whether nothing inside is mutated."""
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name(name), *_]) | ast.FunctionDef(name=name):
            return name in SPEED | UNSHOWN
        case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name)):
            return name in UNSHOWN
        case ast.AnnAssign(annotation=ast.Name("TypeAlias")):
            return True
        case ast.Compare():
            return any(getattr(inner, "id", "") in SPEED for inner in ast.walk(node))
    return False


def changes(tree: ast.AST, source: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the changes of a file as start, end and new text."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: Any) -> tuple[int, int]:
        end = starts[node.end_lineno - 1] + node.end_col_offset
        return starts[node.lineno - 1] + node.col_offset, end

    def swaps(one: ast.AST, op: ast.AST, other: ast.AST) -> Iterator[tuple[int, int, bytes]]:
        old, *news = SWAPS.get(type(op), ("",))
        at = source.find(old.encode(), span(one)[1], span(other)[0])
        yield from ((at, at + len(old), new.encode()) for new in news if at >= 0)

    def visit(node: ast.AST) -> Iterator[tuple[int, int, bytes]]:
        if is_left_out(node):
            return
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                for one, op, other in zip(sides, node.ops, sides[1:], strict=False):
                    yield from swaps(one, op, other)
            case ast.BinOp(left, op, right):
                texts = [isinstance(getattr(side, "value", 0), str) for side in (left, right)]
                if not any(texts) and not isinstance(left, ast.JoinedStr):
                    yield from swaps(left, op, right)
            case ast.BoolOp():
                for one, other in zip(node.values, node.values[1:], strict=False):
                    yield from swaps(one, node.op, other)
            case ast.AugAssign(target, ast.Add() | ast.Sub() as op, value):
                yield from swaps(target, op, value)
            case ast.UnaryOp(ast.USub()):
                yield span(node)[0], span(node)[0] + 1, b"+"
            case ast.UnaryOp(ast.Not(), operand):
                yield span(node)[0], span(operand)[0], b""
            case ast.Constant(int() | float() as value) if not isinstance(value, bool):
                step = value - 1 if value else 1
                new = step if isinstance(value, int) else 2 * value or 1.0
                yield *span(node), f"({new})".encode()
            case ast.If(test) | ast.While(test) | ast.IfExp(test):
                begin, end = span(test)
                yield begin, end, b"(not (" + source[begin:end] + b"))"
        for name, field in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list"):
                for inner in field if isinstance(field, list) else [field]:
                    if isinstance(inner, ast.AST):
                        yield from visit(inner)

    yield from visit(tree)


def mutants(path: Path, seed: int) -> Iterator[Mutant]:
    """Yield all mutants of a file."""
    source = path.read_bytes()
    seen = Counter[str]()
    for start, stop, new in changes(ast.parse(source), source):
        first, last = source.rfind(b"\n", 0, start) + 1, source.find(b"\n", start)
        raw = source[first:last]
        line, column = raw.strip().decode(), start - first - (len(raw) - len(raw.lstrip()))
        old, change = (b" ".join(text.split()).decode() for text in (source[start:stop], new))
        key = f"{seed}|{line}|{column}|{old}|{change}"
        seen[key] += 1
        rank = hashlib.sha256(f"{key}|{seen[key]}".encode()).hexdigest()[:16]
        text = f"{old!r} -> {change!r} in {line!r}"
        number = source.count(b"\n", 0, start) + 1
        yield Mutant(rank, str(path.relative_to(ROOT)), number, start, stop, new, text)


def calls(tests: tuple[str, ...], path: str) -> list[str]:
    """Return the calls of pytest for a file."""
    stem = Path(path).stem
    calls_of_file = [
        call.replace("STEM", stem).replace("SPEC", stem.replace("_", "-")) for call in tests
    ]
    for name, files in FILES.items():
        calls_of_file = [call.replace(name, files) for call in calls_of_file]
    if "USERS" in calls_of_file:
        calls_of_file.remove("USERS")
        solvers = {p.stem: p.read_text() for p in sorted((ROOT / "solvers").glob("*.py"))}
        using = [name for name, text in solvers.items() if f"lab.kernels.{stem} " in text]
        tested = {name: ROOT / f"tests/solvers/test_{name}.py" for name in using}
        others = sorted(set(using) - {*CLASSICAL}, key=lambda name: tested[name].stat().st_size)
        tested_users = [*(name for name in CLASSICAL if name in using), *others][:2]
        calls_of_file += [str(tested[name].relative_to(ROOT)) for name in tested_users]
    return calls_of_file


def users(path: str) -> set[str]:
    """Return the stems of the files whose machine code may contain that of a file.

    Kernels call kernels of their own file and of `SHARED` files, which may call each other.
    """
    shared = {file for glob in SHARED for file in (ROOT / "inference_lab").glob(glob)}
    reached = {ROOT / path}
    if not reached <= shared:
        return {Path(path).stem}
    files = {
        f for part in ("inference_lab", "solvers", "tests") for f in ROOT.glob(f"{part}/**/*.py")
    }
    texts = {file: file.read_text() for file in files}

    def importing() -> set[Path]:
        modules = {".".join(file.relative_to(ROOT).with_suffix("").parts) for file in reached}
        return {f for f in files if any(f"from {module} import" in texts[f] for module in modules)}

    while more := importing() & shared - reached:
        reached |= more
    return {file.stem for file in reached | importing()}


def make_copy(copy: Path) -> None:
    """Copy the checkout, and the environment that runs this, whose files are linked."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(None, subprocess.check_output(listed, cwd=ROOT, text=True).split("\0")):
        if (ROOT / name).is_file() and not (ROOT / name).is_symlink():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    if not (copy / ".venv").exists():
        shutil.copytree(sys.prefix, copy / ".venv", symlinks=True, copy_function=os.link)
    for path in copy.glob(".venv/lib/python*/site-packages/__editable__*"):
        text = path.read_text()
        path.unlink()
        path.write_text(text.replace(f"'{ROOT}/", f"'{copy}/"))


def run(copy: Path, call: str, limit: float) -> tuple[str, float]:
    """Run tests in the copy; return the failures, if any, and the processor seconds."""
    tests, _, stem = call.partition(" -k ")
    expression = f"([{stem}- or [{stem}]) and " if stem else ""
    command = [str(copy / ".venv/bin/python"), "-m", "pytest", "-x", "-q", "-n0", "--tb=no", "-rfE"]
    command += ["-p", "no:cacheprovider", "-p", "mutants", "-k", f"{expression}not ({SKIPPED})"]
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    env |= {"PYTHONPATH": str(copy / "tests" / "benchmarks"), "PYTHONDONTWRITEBYTECODE": ""}
    env["NUMBA_CACHE_DIR"] = str(copy / COMPILED)
    env.setdefault("INFERENCE_LAB_DATA", str(ROOT.parent / "shared" / "data"))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(
            [*command, *tests.split()],
            **{"cwd": copy, "env": env, "stdout": printed, "stderr": subprocess.STDOUT},
            process_group=0,
        )
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
        with suppress(subprocess.TimeoutExpired):
            process.wait(HANGS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        printed.seek(0)
        failed = [line.strip() for line in printed if line.startswith(("FAILED", "ERROR"))]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    why = "" if status == 0 else f"exit status {status}"
    return (failed or [why])[0][:200], used


def pytest_configure() -> None:
    """Stop Hypothesis at the first failing example, because the smallest is not needed."""
    from hypothesis import Phase, settings

    quick = settings.get_profile("quick")
    settings.register_profile("mutants", quick, phases=(Phase.explicit, Phase.generate))
    settings.load_profile("mutants")


def main() -> None:
    """Print the fate of each mutant, and the number killed in each room."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("copy", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    planned = []
    for room, share, glob, tests in ROOMS:
        files = [path for path in sorted(ROOT.glob(glob)) if path.name not in LEFT_OUT]
        by_rank = {m.rank: m for path in files for m in mutants(path, options.seed)}
        wanted = round(share * options.mutants / 200)
        if len(by_rank) < wanted:
            sys.exit(f"{room}: only {len(by_rank)} mutants in {glob}; mend the table of rooms")
        print(f"{room}: {wanted} of {len(by_rank)} mutants", flush=True)
        planned += [(room, calls(tests, m.path), m) for _, m in sorted(by_rank.items())[:wanted]]
    # Rooms take turns, so that the first part of a run covers all of them.
    planned.sort(key=lambda one: one[2].rank)
    copy, out = options.copy, options.out
    lines = out.read_text().splitlines() if out.exists() else []
    done: dict[str, dict[str, Any]] = {one["rank"]: one for one in map(json.loads, lines)}
    make_copy(copy)

    def note(row: dict[str, Any]) -> None:
        done[row["rank"]] = row
        with out.open("a") as stream:
            print(json.dumps(row), file=stream)

    # The library itself runs first, to check its tests, compile its kernels and time it.
    if not (copy / CLEAN).exists():
        for call in dict.fromkeys(call for _, asked, _ in planned for call in asked):
            run(copy, call, 3000.0)
            failed, seconds = run(copy, call, 3000.0)
            print(f"without a mutant: {call}: {seconds:.0f} s {failed}", flush=True)
            if failed:
                sys.exit("the tests have to pass without a mutant")
            note({"rank": call, "cpu_s": round(seconds, 1)})
        shutil.copytree(copy / COMPILED, copy / CLEAN, copy_function=os.link)
    for number, (room, asked, m) in enumerate(planned, 1):
        if m.rank in done:
            continue
        shutil.rmtree(copy / COMPILED, ignore_errors=True)
        shutil.copytree(copy / CLEAN, copy / COMPILED, copy_function=os.link)
        # Numba detects a changed file, but not a change in a file whose kernels it calls.
        stale = users(m.path)
        for stem in stale:
            for index in (copy / COMPILED).glob(f"**/{stem}.*.nbi"):
                index.unlink()
        source, stamp = (ROOT / m.path).read_bytes(), (ROOT / m.path).stat().st_mtime_ns
        failed, used, begin = "", 0.0, time.time()
        try:
            (copy / m.path).write_bytes(source[: m.start] + m.new + source[m.stop :])
            # Each has its own time, or bytecode and machine code of another would be used.
            os.utime(copy / m.path, ns=(stamp, stamp + number * 10**10))
            for call in asked:
                slack = COMPILING if len(stale) > 1 else SLACK
                failed, seconds = run(copy, call, 2 * done[call]["cpu_s"] + slack)
                used += seconds
                if failed:
                    break
        finally:
            shutil.copy2(ROOT / m.path, copy / m.path)
        row = {"rank": m.rank, "room": room, "place": f"{m.path}:{m.line}", "change": m.change}
        row |= {"killed": bool(failed), "by": failed}
        row |= {"cpu_s": round(used, 1), "wall_s": round(time.time() - begin, 1)}
        note(row)
        fate = "killed" if failed else "SURVIVED"
        print(f"{number}/{len(planned)} {fate} {row['place']}: {m.change}", flush=True)
    for room in (*(room for room, *_ in ROOMS), "all"):
        fates = [done[m.rank]["killed"] for of, _, m in planned if room in (of, "all")]
        print(f"{room}: {sum(fates)} of {len(fates)} killed")


if __name__ == "__main__":
    main()
