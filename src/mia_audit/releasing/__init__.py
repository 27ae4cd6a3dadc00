"""The released model: trained once on the whole pool without a seed, charged in the data set's ledger, with its card."""
