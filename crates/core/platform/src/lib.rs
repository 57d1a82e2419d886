//! The manager: sessions, turns, journal and recovery behind one type, Platform.
