"""The control plane: what should run, what does run, and who may say so. It starts runners and reads their reports."""
