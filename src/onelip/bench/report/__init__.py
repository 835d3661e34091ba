"""From run records to tables, figures, one HTML page and advice; see docs/report.md.

Nothing here touches a model: a report can be rebuilt from a folder of records at any time and on any machine.
`onelip.bench.report.write_report.write_report` writes all of it.
"""
