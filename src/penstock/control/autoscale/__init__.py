"""Advises how many cores pipelines should have, from what their runs report."""
