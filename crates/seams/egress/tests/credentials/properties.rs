//! What holds for every text, however it is made.
