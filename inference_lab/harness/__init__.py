"""The harness: campaigns of runs, each in an isolated process, and each leaving a record."""
