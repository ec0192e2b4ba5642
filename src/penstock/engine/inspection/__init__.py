"""State that is looked at: that of a pipeline, whether it runs or not, and that of a savepoint. Nothing is changed."""
