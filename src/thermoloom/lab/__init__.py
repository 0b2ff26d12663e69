"""The lab: an interactive page on loopback to run, complete, teach, damage and inspect a machine.

server     admits connections and answers each address
viewer     one open page: its messages, its task, its limits
messages   requests that a page may send
scenes     generations, with the numbers and frames that the page shows
lessons    the small machine that is taught
damage     machines with broken parts
inspection the force on a unit, the rule at a coupling
downloads  files, and equivalent Python code
"""
