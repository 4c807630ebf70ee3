"""Turns: answer a message, follow up, explain a reply, summarize and reflect."""
