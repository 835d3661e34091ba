"""5,000 images of CIFAR-10 for onelip's benchmark: one lossless WebP per class, for `onelip.bench.data`."""
