"""The embedded backbone and its word problems: everything a full run needs, with no hub."""
