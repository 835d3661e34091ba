"""Figures of the report: one family per file, each a function from evidence to a list of `ReportFigure`."""
