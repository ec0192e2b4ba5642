"""A range of event time that is computed again: which rows it takes, and which results come of it."""
