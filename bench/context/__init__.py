"""How well context is chosen, and how its scorer is trained: on chats that people have untangled (../shared/data/context)."""
