"""Clipped sums of per-record gradients by book-keeping (Bu et al. 2022), from one backward pass without weight gradients.

`kinds` lists what is covered, `rules` follow a model's calls, `products` sum its weights' gradients, and `engine` runs
and checks a pass.
"""
