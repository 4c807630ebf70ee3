"""Run turns and loops: claims, leases, tasks. The only package that creates tasks."""
