"""Run the commands that people give the bot."""
