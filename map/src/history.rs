//! The past.
