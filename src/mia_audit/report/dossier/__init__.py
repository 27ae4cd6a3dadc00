"""The documents of an audit and a release in one RO-Crate, with a page that answers the questions of regulators and assessors."""
