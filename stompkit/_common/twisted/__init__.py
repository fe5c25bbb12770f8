"""Code on Twisted that several packages share."""
