"""Results of the job *analytics*: counting, storage and report."""
