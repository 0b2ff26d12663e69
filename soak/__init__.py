"""Hours of ill treatment: interrupts at random moments, wrong inputs, damaged files."""
