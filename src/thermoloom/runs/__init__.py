"""What lasts, and where it runs: run directories, execution of tasks, catalogue of results."""
