"""Tools: the registry of the built-in ones, and the toolbox that runs a turn's calls."""
