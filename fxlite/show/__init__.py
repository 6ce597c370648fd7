"""What people look at: graphs as text and pictures, comparisons, queries, summaries and costs."""
