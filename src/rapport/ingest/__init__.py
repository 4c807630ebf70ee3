"""Accept messages: check them, decide whether they are for the agent, and store them; import archives."""
