"""The papers of an audit and a release in one RO-Crate, with a page that answers what regulators and assessors ask."""
