"""Files of segments: blocks of messages, indexes, and sealed segments as Arrow or Parquet."""
