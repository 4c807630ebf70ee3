"""Channels: parse input, pass it to the core, render output."""
