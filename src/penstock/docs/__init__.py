"""The reference, made from what it describes.

Components, fields, error codes and commands carry their own documentation; here it is only laid out, a page in a file.
No Spark is started.
"""
