"""The comparison as a list of jobs; see docs/comparing.md.

`planner.plan` is a pure function from options to jobs, `attempts.attempt` does one, `onelip.bench.engines` does all. A
job's state is its record on the disk and nothing else, so that a study can be killed and continued at any moment, by
any number of processes on any number of machines.
"""
