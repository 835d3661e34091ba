"""The methods: one file each, found by `onelip.layers.registry`, and nothing else in this folder."""
