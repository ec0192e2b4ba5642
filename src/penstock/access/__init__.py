"""What a pipeline may open: files, buckets, servers and secrets; below whatever opens something, and the server."""
