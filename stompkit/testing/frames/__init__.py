"""The frames that were seen, and how tests name them."""
