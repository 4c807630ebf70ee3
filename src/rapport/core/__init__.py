"""Give channels everything they may do, one class for each concern. Channels never import storage."""
