"""Model of replication: changesets, values of columns, selected tables, signals and frames."""
