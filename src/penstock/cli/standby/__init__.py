"""A standby process: Python, Java and Spark started and warm, which runs the next command of the same user at once.

`place` says where it listens and for whom it is, `client` hands a command over, `server` is the process itself.
"""
