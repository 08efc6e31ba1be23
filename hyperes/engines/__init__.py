"""Engines: prompts to completions."""
