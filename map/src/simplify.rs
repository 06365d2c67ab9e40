//! Fewer points.
