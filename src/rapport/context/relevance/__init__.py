"""Which messages of a chat belong together: who answers whom, learned from chats that people have untangled."""
