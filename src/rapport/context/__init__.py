"""Context: select the messages that belong to a call, and render them for the model."""
