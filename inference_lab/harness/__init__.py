"""The harness: campaigns of runs, each in a process of its own, each ending as a record.

`campaign` says what is the same for comparisons of solvers and studies of clustering: tasks, their
order, what is missing of them; `attempts` makes one run and `executors` are where they are made;
`plans` are noted and `folder` says how far a store is. Of comparisons, `planning` builds what is
compared, `running` makes one run, and `comparing` puts them together.
"""
