"""Write replies and notices as messages of Telegram."""
