"""What the model is given of a conversation: pure rules."""
