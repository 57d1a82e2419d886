//! What the usual tools of a base make of the variables in a sandbox: each finds the way out, trusts the boundary where
//! it ends TLS, and sends the placeholder of a credential.

#![expect(missing_docs, reason = "each case is named as the fact that it shows")]

use std::io::Write as _;

use astrabox_testkit::upstream::Received;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::credentials::{World, canary};
use crate::{Program, must};

/// The file for what could not be tested; `cargo xtask test` reads it.
const SKIPS: &str = "ASTRABOX_SKIPS";

/// A tool, and how it is made to send the placeholder in `API_KEY` to `https://api.test/v1/<name>`.
struct Tool {
    name: &'static str,
    /// Fails where the tool is not there.
    look: &'static str,
    script: &'static str,
    shows: Shows,
}

/// Where the value is at the upstream.
#[derive(Clone, Copy)]
enum Shows {
    Key,
    Bearer,
    Basic,
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "curl",
        look: "command -v curl",
        script: r#"curl -sS -H "x-key: $API_KEY" https://api.test/v1/curl"#,
        shows: Shows::Key,
    },
    Tool {
        name: "git",
        look: "command -v git",
        script: r#"git -c http.extraHeader="x-key: $API_KEY" ls-remote https://api.test/v1/git"#,
        shows: Shows::Key,
    },
    Tool {
        name: "urllib",
        look: "command -v python3",
        script: "python3 - <<'END'\n\
                 import os, urllib.request\n\
                 request = urllib.request.Request('https://api.test/v1/urllib', headers={'x-key': os.environ['API_KEY']})\n\
                 print(urllib.request.urlopen(request).read())\n\
                 END",
        shows: Shows::Key,
    },
    Tool {
        name: "requests",
        look: "python3 -c 'import requests'",
        script: "python3 - <<'END'\n\
                 import os, requests\n\
                 print(requests.get('https://api.test/v1/requests', headers={'x-key': os.environ['API_KEY']}).text)\n\
                 END",
        shows: Shows::Key,
    },
    Tool {
        name: "pip",
        look: "python3 -m pip --version",
        script: "python3 -m pip download --no-deps --retries 0 --no-cache-dir --disable-pip-version-check \
                 --index-url https://me:$API_KEY@api.test/v1/pip/ nothing",
        shows: Shows::Basic,
    },
    Tool {
        name: "npm",
        look: "command -v npm && npm --version",
        script: "cd /tmp && npm view nothing --registry https://api.test/v1/npm/ --fetch-retries 0 \
                 --//api.test/v1/npm/:_authToken=$API_KEY",
        shows: Shows::Bearer,
    },
    Tool {
        name: "node",
        look: "command -v node",
        // By hand: its clients know no proxy.
        script: "node - <<'END'\n\
                 const proxy = new URL(process.env.HTTPS_PROXY);\n\
                 const to = {host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: 'api.test:443',\n\
                            headers: {host: 'api.test:443'}};\n\
                 require('http').request(to).on('connect', (_, socket) => {\n\
                   const tls = require('tls').connect({socket, servername: 'api.test'});\n\
                   const key = process.env.API_KEY;\n\
                   tls.write(`GET /v1/node HTTP/1.1\\r\\nHost: api.test\\r\\nx-key: ${key}\\r\\nConnection: close\\r\\n\\r\\n`);\n\
                   tls.on('data', (data) => process.stdout.write(data));\n\
                 }).end();\n\
                 END",
        shows: Shows::Key,
    },
    Tool {
        name: "cargo",
        look: "command -v cargo && cargo --version",
        script: "CARGO_HOME=/tmp/cargo CARGO_REGISTRIES_HERE_INDEX=sparse+https://api.test/v1/cargo/ \
                 CARGO_REGISTRIES_HERE_TOKEN=\"Bearer $API_KEY\" cargo search --registry here nothing",
        shows: Shows::Bearer,
    },
    Tool {
        name: "java",
        look: "command -v java",
        script: "cat > /tmp/Call.java <<'END'\n\
                 import java.net.URI;\n\
                 import java.net.http.HttpClient;\n\
                 import java.net.http.HttpRequest;\n\
                 import java.net.http.HttpResponse.BodyHandlers;\n\
                 public class Call {\n\
                   public static void main(String[] arguments) throws Exception {\n\
                     String key = System.getenv(\"API_KEY\");\n\
                     URI uri = URI.create(\"https://api.test/v1/java\");\n\
                     HttpRequest request = HttpRequest.newBuilder(uri).header(\"x-key\", key).build();\n\
                     System.out.println(HttpClient.newHttpClient().send(request, BodyHandlers.ofString()).body());\n\
                     var old = uri.toURL().openConnection();\n\
                     old.setRequestProperty(\"x-key\", key);\n\
                     System.out.println(new String(old.getInputStream().readAllBytes()));\n\
                   }\n\
                 }\n\
                 END\n\
                 java /tmp/Call.java",
        shows: Shows::Key,
    },
];

pub async fn usual_tools_reach_a_host_with_a_credential(program: &Program) {
    let world = must(World::of(program).await);
    let mut talk = must(world.stage.conversation(program.unasked).await);
    for tool in TOOLS {
        let run = format!(
            "if {{ {}; }} > /dev/null 2>&1; then\n{}\nelse echo is-absent; fi",
            tool.look, tool.script
        );
        // One line, and nothing in it that anybody could read otherwise.
        let coded = BASE64.encode(run);
        let prompt = format!("RUN: echo {coded} | base64 -d > /tmp/run; sh /tmp/run 2>&1");
        let turn = must(talk.say(&prompt).await);
        let output = &turn.results()[0].output;
        if output.contains("is-absent") {
            skip(tool.name);
            continue;
        }
        let path = format!("/v1/{}", tool.name);
        let received = world.api.received();
        let asked: Vec<_> = received
            .iter()
            .filter(|request| request.target.starts_with(&path))
            .collect();
        assert!(!asked.is_empty(), "{}: {output}", tool.name);
        for request in asked {
            assert!(is_shown(request, tool.shows), "{}: {output}", tool.name);
        }
    }
    must(world.clear().await);
}

fn is_shown(request: &Received, shows: Shows) -> bool {
    let value = canary("api");
    let authorization = request.header("authorization");
    match shows {
        Shows::Key => request.header("x-key") == Some(&value),
        Shows::Bearer => authorization == Some(&format!("Bearer {value}")),
        Shows::Basic => {
            let pair = BASE64.encode(format!("me:{value}"));
            authorization == Some(&format!("Basic {pair}"))
        }
    }
}

/// Says that a tool was not tried.
#[expect(clippy::print_stderr, reason = "tells the person who runs the test")]
fn skip(tool: &str) {
    let test = format!("usual_tools_reach_a_host_with_a_credential ({tool})");
    let reason = "the base has no such tool";
    eprintln!("{test} is skipped: {reason}");
    if let Some(list) = std::env::var_os(SKIPS) {
        let mut list = must(std::fs::File::options().append(true).open(list));
        must(writeln!(list, "{test}\t{reason}"));
    }
}
