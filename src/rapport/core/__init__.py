"""What channels may do, one class for each concern. Channels read and write through it and never import storage."""
