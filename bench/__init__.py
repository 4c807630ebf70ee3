"""What a turn costs beside a bare proxy, measured in one run: `python -m bench.overhead`."""
