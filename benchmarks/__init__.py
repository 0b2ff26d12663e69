"""How fast the engine is: against the machine's own limits and against what others would write.

python -m benchmarks [--only GROUP,…] [--full] prints one table and writes bench.json;
with --against CHECKOUT it measures in turns with another checkout and prints the ratios.
"""
