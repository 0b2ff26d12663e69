"""Theory: predictions of learning and generation without a simulated trajectory."""
