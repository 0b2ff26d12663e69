"""Run directories, execution of tasks, and the catalogue of results."""
