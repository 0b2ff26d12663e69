"""How fast the engine is: against the machine's own limits and against what others would write.

python -m benchmarks [--only GROUP,…] [--full] prints one table and writes bench.json.
"""
