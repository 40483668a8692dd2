"""The command line: ``inference-lab``.

Exit codes: 0 for success; 1 when runs failed, results contradict each other or checks failed; 2 for
a wrong command line, or files that cannot be read or written; 130 after Ctrl-C. With ``--json``
standard output holds one JSON document and nothing else.

Only click is imported here; each command imports its dependencies when it runs.
"""

from __future__ import annotations

import click

import inference_lab
import inference_lab.cli.options as options
from inference_lab.cli.checking import check
from inference_lab.cli.clustering import assign, cluster
from inference_lab.cli.common import Group
from inference_lab.cli.compare_command import compare
from inference_lab.cli.data_command import data
from inference_lab.cli.diagnosing import diagnose
from inference_lab.cli.listing import list_names
from inference_lab.cli.solve_command import solve
from inference_lab.cli.store_commands import merge, report
from inference_lab.cli.studying import reproduce


@click.group(
    cls=Group, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.version_option(inference_lab.__version__, prog_name="inference-lab")
@options.debug
def main() -> None:
    """Compare inference methods for discrete energies: one energy, one clock, a bound in every row.

    Solvers and problems are named by specs such as "loopy-bp(damping=0.5)" and
    "estep(data=iris, constraints=200, noise=0.1)"; "list" shows the names and their settings.
    The spec of your own solver is its file: "my_solver.py" or "my_solver.py:Class(setting=1)".
    """


for _command in (
    compare,
    solve,
    diagnose,
    list_names,
    check,
    reproduce,
    report,
    merge,
    cluster,
    assign,
    data,
):
    main.add_command(_command)
