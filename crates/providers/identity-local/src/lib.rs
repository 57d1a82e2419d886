//! The local identity provider: the peer of a unix socket, or the holder of a bearer token file.
