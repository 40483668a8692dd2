"""The harness: runs of solvers on problems, each in a process of its own, each ending as a record.

`planning` lists the runs, `executors` are where they are made, `running` makes one, `isolation`
gives it a process under limits, `comparing` puts them together, `folder` says how far a store is.
"""
