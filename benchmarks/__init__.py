"""Benchmarks: the same rows, the same machine, the same run; answers are compared before times."""
