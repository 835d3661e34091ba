"""Parts that stand between constrained layers: activations, pooling, centering, residual connections, reshaping."""
