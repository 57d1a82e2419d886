//! A registry of named constructors, filled at link time or by hand.
