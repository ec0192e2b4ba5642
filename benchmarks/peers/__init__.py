"""The other systems, each in its natural form and in a process of its own."""
