"""What came in, read: an update becomes something that has happened."""
