"""What past trials teach: features, surrogates, priors from other workloads, portfolios.

Pure, as `search` is: no clock, no files, no global generators.
"""
