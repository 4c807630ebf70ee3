"""Texts as vectors: by the bundled weights, by a lighter bundled table of words, or by a provider's model."""
