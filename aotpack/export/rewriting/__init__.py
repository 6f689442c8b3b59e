"""Rewrites of users: an operator or a pattern of a program is replaced by other operators."""
