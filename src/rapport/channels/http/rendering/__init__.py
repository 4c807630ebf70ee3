"""Turn values into JSON and safe HTML."""
