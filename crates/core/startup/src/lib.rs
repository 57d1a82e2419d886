//! The one startup line from a session to a running engine, over the EnginePlatform contract.
