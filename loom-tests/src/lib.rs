//! PEs as loom threads over the very protocols that ship.
