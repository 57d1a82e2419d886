//! The refresh request, as bytes.

use astrabox_types::{ClientAuthMethod, Secret};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// What to refresh.
pub struct RefreshRequest<'a> {
    /// The token endpoint's address.
    pub endpoint: &'a str,
    /// The client.
    pub client_id: &'a str,
    /// How it shows who it is.
    pub auth_method: ClientAuthMethod,
    /// Its secret, for methods that need one.
    pub client_secret: Option<&'a Secret>,
    /// The refresh token.
    pub refresh_token: &'a Secret,
    /// The scope; empty means that of the token before.
    pub scope: &'a str,
}

impl RefreshRequest<'_> {
    /// The body, `application/x-www-form-urlencoded`.
    pub(crate) fn body(&self) -> Zeroizing<Vec<u8>> {
        let mut form = Form::default();
        form.pair("grant_type", b"refresh_token");
        form.pair("refresh_token", self.refresh_token.expose());
        if !self.scope.is_empty() {
            form.pair("scope", self.scope.as_bytes());
        }
        match self.auth_method {
            ClientAuthMethod::ClientSecretBasic => {}
            ClientAuthMethod::None => form.pair("client_id", self.client_id.as_bytes()),
            ClientAuthMethod::ClientSecretPost => {
                form.pair("client_id", self.client_id.as_bytes());
                form.pair("client_secret", self.secret());
            }
        }
        form.0
    }

    /// The Authorization header, for the method that has one. Both parts are form-encoded first (section 2.3.1).
    pub(crate) fn authorization(&self) -> Option<Zeroizing<String>> {
        match self.auth_method {
            ClientAuthMethod::None | ClientAuthMethod::ClientSecretPost => None,
            ClientAuthMethod::ClientSecretBasic => {
                let mut pair = Form::default();
                pair.text(self.client_id.as_bytes());
                pair.0.push(b':');
                pair.text(self.secret());
                let encoded = Zeroizing::new(STANDARD.encode(&*pair.0));
                Some(Zeroizing::new(format!("Basic {}", *encoded)))
            }
        }
    }

    fn secret(&self) -> &[u8] {
        self.client_secret.map_or(&[], Secret::expose)
    }
}

#[derive(Default)]
struct Form(Zeroizing<Vec<u8>>);

impl Form {
    fn pair(&mut self, name: &str, value: &[u8]) {
        if !self.0.is_empty() {
            self.0.push(b'&');
        }
        self.text(name.as_bytes());
        self.0.push(b'=');
        self.text(value);
    }

    fn text(&mut self, text: &[u8]) {
        // Room for all of it at once: a buffer that grows leaves copies behind.
        let mut grown = Zeroizing::new(Vec::with_capacity(self.0.len() + 3 * text.len() + 64));
        grown.extend_from_slice(&self.0);
        for byte in text {
            match byte {
                b' ' => grown.push(b'+'),
                b'*' | b'-' | b'.' | b'_' => grown.push(*byte),
                byte if byte.is_ascii_alphanumeric() => grown.push(*byte),
                byte => {
                    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                    let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
                    grown.extend_from_slice(&[b'%', DIGITS[high], DIGITS[low]]);
                }
            }
        }
        self.0 = grown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes().to_vec())
    }

    #[test]
    fn each_method_shows_the_client_in_its_own_place() {
        use ClientAuthMethod::{ClientSecretBasic, ClientSecretPost, None};
        let (token, key) = (secret("r t+/="), secret("k&:é"));
        for (auth_method, scope, body, header) in [
            (
                None,
                "",
                "grant_type=refresh_token&refresh_token=r+t%2B%2F%3D&client_id=a%3Ab",
                Option::None,
            ),
            (
                ClientSecretPost,
                "one two",
                "grant_type=refresh_token&refresh_token=r+t%2B%2F%3D&scope=one+two&client_id=a%3Ab\
                 &client_secret=k%26%3A%C3%A9",
                Option::None,
            ),
            (
                ClientSecretBasic,
                "",
                "grant_type=refresh_token&refresh_token=r+t%2B%2F%3D",
                Some("a%3Ab:k%26%3A%C3%A9"),
            ),
        ] {
            let request = RefreshRequest {
                endpoint: "https://issuer.example/token",
                client_id: "a:b",
                auth_method,
                client_secret: Some(&key),
                refresh_token: &token,
                scope,
            };
            assert_eq!(std::str::from_utf8(&request.body()), Ok(body));
            let shown = request.authorization().map(|text| text.to_string());
            let wanted = header.map(|pair| format!("Basic {}", STANDARD.encode(pair)));
            assert_eq!(shown, wanted);
        }
    }
}
