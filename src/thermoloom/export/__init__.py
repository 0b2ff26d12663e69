"""Export to a device: coupling tables, netlists, physical units, and ngspice as a check."""
