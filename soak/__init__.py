"""Hours of ill treatment: interrupts, wrong inputs, damaged files, threads, slow viewers."""
