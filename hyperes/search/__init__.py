"""Search over merge coefficients: a grid for the global knobs, then CMA-ES from its best point."""
