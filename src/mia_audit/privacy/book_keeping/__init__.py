"""Clipped sums of per-record gradients by book-keeping (Bu et al. 2022): one backward pass, and none of the weights.

`engine` runs a micro-batch, `trace` follows what a model does with its parameters, `rules` knows layers, `products` the
gradients of weights that are sums of outer products, and `check` decides whether a model is covered.
"""
