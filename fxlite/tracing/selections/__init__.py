"""Parts of arrays whose size is known only at run time: selected by masks, or cut by computed bounds."""
