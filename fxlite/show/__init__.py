"""Presentation of graphs: text and pictures, comparisons, queries, summaries and costs."""
