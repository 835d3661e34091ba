"""Pure functions on tensors with arbitrary leading batch dimensions: the mathematics below the layers.

`polar` (iterations to the polar factor and its implicit gradient), `orthogonal` (Cayley, Cholesky, exponential),
`rescaling` (AOL), `norms`, `fourier` (kernels as matrices per frequency), `convolution`. Nothing here branches on the
values of a tensor, so that everything can be traced by torch.compile.
"""
