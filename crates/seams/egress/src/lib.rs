//! What may leave a sandbox and which placeholder stands for which credential, as pure rules.
