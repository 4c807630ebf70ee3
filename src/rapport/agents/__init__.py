"""The model behind a reply, run as a LangGraph graph."""
