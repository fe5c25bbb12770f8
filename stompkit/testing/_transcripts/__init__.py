"""What was seen, as text, compared and replayed."""
