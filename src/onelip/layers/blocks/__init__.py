"""What stands between constrained layers: activations, pooling, centering, residual connections, reshaping."""
