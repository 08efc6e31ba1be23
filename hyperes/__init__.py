"""hyperes: few-gradient fine-tuning of LLMs by merging descent directions (Hyper-ES)."""

__version__ = "0.1.0"
