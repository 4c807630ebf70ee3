"""What goes out, written: the agent's words and the bot's notices as messages of Telegram."""
