"""The program that front ends return and passes transform, and what edits it."""
