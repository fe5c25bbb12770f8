"""Commands that list and manage queues."""
