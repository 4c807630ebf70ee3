"""Run the bot's commands."""
