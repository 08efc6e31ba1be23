"""The inside of the sandbox: what runs between ``hyperes.sandbox`` and a program that nobody vouches for.

Imports nothing but a few light modules of the standard library: it starts once per program.
"""
