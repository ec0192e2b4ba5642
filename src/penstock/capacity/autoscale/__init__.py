"""How many cores a pipeline should have: observed, evaluated, decided and simulated by plain functions."""
