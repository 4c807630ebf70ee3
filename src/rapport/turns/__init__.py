"""Take one turn: answer a message, or follow up; and the work after it."""
