"""Finished runs become the paper's tables: ``python -m hyperes.tables DIR...``"""
