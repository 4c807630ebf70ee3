"""What the model is given of the conversation."""
