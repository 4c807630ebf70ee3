"""Commands: what people may ask of the bot itself."""
