"""Stateful steps on chunk files: the streaming query reads and prepares, kernels run on each batch after it."""
