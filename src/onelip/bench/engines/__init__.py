"""Engines that run the jobs of a study; see docs/cluster.md.

An engine starts the command `onelip job STUDY NAME` somewhere and says how it ended; `driver.Driver` decides which job
is next. Neither knows the state of a job by any other way than its record.
"""
