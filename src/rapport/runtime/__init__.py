"""Who runs what and when: claims, leases, tasks. The only place that creates tasks."""
