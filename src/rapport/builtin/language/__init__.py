"""Words, sentences and languages of a text."""
