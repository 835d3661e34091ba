"""The comparison: measure, search, train, certify, diagnose; see docs/comparing.md.

`plan.plan` is a pure function from options to jobs, `loop.Worker` does them. A job's state is its record on the disk
and nothing else, so that a study can be killed and continued at any moment, by any number of processes.
"""
