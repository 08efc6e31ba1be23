"""Direction sources: each turns a subset (or nothing) into a PEFT adapter folder."""
