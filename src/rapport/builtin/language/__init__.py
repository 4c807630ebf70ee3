"""A small word toolkit: words, stems, sentences and the language of a text."""
