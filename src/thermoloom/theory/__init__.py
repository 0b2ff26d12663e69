"""What can be known about learning without a single trajectory."""
