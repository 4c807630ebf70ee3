"""Plain SQL, numbered, up and down."""
