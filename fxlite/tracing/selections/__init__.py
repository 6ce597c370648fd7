"""Parts of arrays whose size is known when the program runs: selected by masks, cut by computed bounds."""
