"""`python -m rapport` is `rapport`."""

from rapport.cli.main import run

run()
