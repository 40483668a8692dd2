"""The harness: campaigns of runs, each in a process of its own, each ending as a record.

`campaign` has what comparisons of solvers and studies of clustering share: tasks, their order, and
which of them are missing. `isolated_run` makes one run, `executors` are where they are made,
`manifest` notes plans, and `results_dir` counts the states of runs. For comparisons, `instances`
builds the problems, `running` makes one run, and `comparing` puts them together.
"""
