"""Changes of state that is there: into other partitions, and for a pipeline with other steps."""
