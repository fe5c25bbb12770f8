"""Planning: from changes to the final states of rows, and to operations on a target."""
