//! The binary and the repository as a whole.

mod tidy;
