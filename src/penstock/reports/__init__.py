"""What a runner and the control plane tell each other, through files in the folder of a run."""
