"""Clipped sums of per-record gradients by book-keeping (Bu et al. 2022), with one backward pass that computes no weight gradients.

`engine` runs a micro-batch, `trace` follows how a model uses its parameters, `rules` covers the layers, `products`
covers weights whose gradients are sums of outer products, and `check` decides whether a model is covered.
"""
