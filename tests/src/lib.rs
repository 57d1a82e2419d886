//! End-to-end tests of the assembled product.
