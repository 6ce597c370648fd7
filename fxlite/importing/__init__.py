"""Imports models of other libraries as graphs. Importing is tracing: an importer calls fxlite's ops on
proxies, node by node. The common parts of importers (names, scopes, weights, errors) are here."""
