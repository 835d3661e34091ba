"""Bounds that hold, rounding included: of norms, of operators, of the pass that computes them.

`proven` and `proven_convolution` bound norms, `linear_bounds` linear operators. `layer_bound` says what is proven about
one layer and how such statements combine, `measured_rounding` how much a layer rounds at given inputs. Everything here
reads the numbers in memory of deployed layers; nothing is differentiated.
"""
