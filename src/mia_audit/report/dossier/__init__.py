"""Dossier: the documents of an audit and a release in one RO-Crate, with a page that answers regulators' and assessors' questions."""
