"""Hours of stress tests: interrupts, wrong inputs, damaged files, threads, slow viewers."""
