"""Studies: one folder each, and the frame that all of them share."""
