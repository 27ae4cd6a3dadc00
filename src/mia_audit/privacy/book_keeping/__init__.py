"""Clipped sums of per-record gradients by book-keeping (Bu et al. 2022): one backward pass, which skips the weights.

`engine` runs a micro-batch, `trace` follows a model's use of its parameters, `rules` has the layers, `products` has the
gradients of weights that are sums of outer products, and `check` decides whether a model is covered.
"""
