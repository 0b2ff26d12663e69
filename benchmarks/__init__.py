"""Speed of the engine, relative to the limits of the hardware and to code that a user would write.

python -m benchmarks [--only GROUP,…] [--full] prints one table and writes bench.json;
with --against CHECKOUT it alternates with another checkout and prints the ratios.
"""
