"""How many machines a pipeline takes: arithmetic over rates, sizes and limits. No Spark, and no I/O."""
