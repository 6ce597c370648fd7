"""Models of other libraries become graphs. Importing is tracing: an importer calls fxlite's ops on
proxies, node by node, and what it needs beside that (names, scopes, weights, errors) is here."""
