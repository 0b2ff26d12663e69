"""The lab: a page on loopback on which a machine is run, completed, taught, damaged, taken apart.

server     who may connect, and what each address gives
viewer     one open page: its messages, its work, its limits
messages   what a page may ask for
scenes     generations with all that is shown of them
lessons    the small machine that is taught
damage     machines with something broken
inspection the force on a unit, the rule at a coupling
downloads  files, and the Python lines that do the same
"""
