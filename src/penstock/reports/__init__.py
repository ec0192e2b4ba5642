"""What a run reports of itself, as files in its folder: written by the runner, read by the control plane."""
