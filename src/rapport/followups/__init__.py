"""Follow up: decide when, check the gates, and keep the mechanism hidden (AUTO)."""
