"""What a small pipeline costs: cores, memory, processes and programs, beside plain PySpark and Flink."""
