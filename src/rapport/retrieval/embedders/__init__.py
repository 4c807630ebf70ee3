"""Embed texts: with the bundled model, with a lighter table of word vectors, or with a provider's model."""
