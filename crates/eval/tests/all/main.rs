//! The library of conversations is valid, and every measure can fail.

mod library;
mod measures;
mod workspace_measures;
