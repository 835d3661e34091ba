"""The comparison paper: its tables, logs and formulas as data, its settings and weights, and its runs trained anew."""
