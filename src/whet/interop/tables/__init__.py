"""The tuned tables of serving engines: which ones a model needs, and whether a file is one.

`models.py` reads a model's `config.json`, `shapes.py` says what an engine looks up for it and which
configs are worth a try, `engines.py` what an engine ships and reads, `checking.py` looks at a file.
"""
