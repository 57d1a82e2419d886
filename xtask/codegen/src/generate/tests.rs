use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::{Target, generate};
use crate::output;

const PROTO: &str = r#"
syntax = "proto3";
package sample.v1;
import "google/protobuf/timestamp.proto";
// Says hello.
service Greeter {
  // Answers once.
  rpc Greet(GreetRequest) returns (GreetResponse);
  rpc Watch(GreetRequest) returns (stream GreetResponse);
}
message GreetRequest { string name = 1; bytes blob = 2; google.protobuf.Timestamp at = 3; }
message GreetResponse { oneof kind { string text = 1; int64 number = 2; } }
"#;

const TARGET: Target = Target {
    package: "sample.v1",
    folder: "sample/v1",
    out: "",
    server_feature: Some("server"),
    client_feature: Some("client"),
    descriptor: true,
};

fn tree(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

fn code(dir: &Path) -> String {
    let files = generate(dir, &TARGET).unwrap();
    String::from_utf8(files["sample.v1.rs"].clone()).unwrap()
}

#[test]
fn two_runs_from_two_folders_agree_to_the_byte() {
    let one = tree(&[("sample/v1/a.proto", PROTO)]);
    let two = tree(&[("sample/v1/a.proto", PROTO)]);
    assert_eq!(
        generate(one.path(), &TARGET).unwrap(),
        generate(two.path(), &TARGET).unwrap()
    );
}

#[test]
fn server_and_client_are_behind_their_features() {
    let dir = tree(&[("sample/v1/a.proto", PROTO)]);
    let code = code(dir.path());
    for (feature, module) in [("server", "greeter_server"), ("client", "greeter_client")] {
        let module = code.find(&format!("pub mod {module}")).unwrap();
        let feature = code
            .find(&format!("#[cfg(feature = \"{feature}\")]"))
            .unwrap();
        assert!(feature < module);
    }
    assert!(code.contains("/// Answers once."));
    assert!(code.contains("::prost::bytes::Bytes"));
}

#[test]
fn generated_code_is_formatted_already() {
    let dir = tree(&[("sample/v1/a.proto", PROTO)]);
    let code = code(dir.path());
    assert_eq!(super::rustfmt(&code).unwrap(), code);
}

#[test]
fn the_descriptor_holds_imports_and_no_comment() {
    let dir = tree(&[("sample/v1/a.proto", PROTO)]);
    let descriptor = &generate(dir.path(), &TARGET).unwrap()["descriptor.bin"];
    let text = String::from_utf8_lossy(descriptor);
    assert!(text.contains("google/protobuf/timestamp.proto"));
    assert!(!text.contains("Says hello"));
}

#[test]
fn a_folder_without_proto_files_is_an_error() {
    let dir = tree(&[("sample/v1/readme.txt", "")]);
    let error = generate(dir.path(), &TARGET).unwrap_err();
    assert_eq!(error.to_string(), "proto/sample/v1 holds no .proto file");
}

#[test]
fn a_message_of_an_unlisted_package_is_refused() {
    let other = "syntax = \"proto3\"; package other.v1; message M { string a = 1; }";
    let user = "syntax = \"proto3\"; package sample.v1; import \"other/v1/b.proto\"; \
                message N { other.v1.M m = 1; }";
    let dir = tree(&[("other/v1/b.proto", other), ("sample/v1/a.proto", user)]);
    let error = generate(dir.path(), &TARGET).unwrap_err();
    assert!(error.to_string().contains("package other.v1"), "{error}");
}

#[test]
fn a_differing_a_missing_and_a_stale_file_are_each_named() {
    let dir = tree(&[("sample/v1/a.proto", PROTO)]);
    let files = generate(dir.path(), &TARGET).unwrap();
    let out = tempfile::tempdir().unwrap();
    assert_eq!(output::differences(out.path(), &files).unwrap().len(), 2);
    assert_eq!(output::write(out.path(), &files).unwrap(), 2);
    assert!(output::differences(out.path(), &files).unwrap().is_empty());
    assert_eq!(output::write(out.path(), &files).unwrap(), 0);

    fs::write(out.path().join("sample.v1.rs"), "edited").unwrap();
    fs::remove_file(out.path().join("descriptor.bin")).unwrap();
    fs::write(out.path().join("old.rs"), "").unwrap();
    let said = output::differences(out.path(), &files).unwrap().join("\n");
    for expected in [
        "sample.v1.rs differs",
        "descriptor.bin is missing",
        "old.rs is not generated",
    ] {
        assert!(said.contains(expected), "{said}");
    }
    output::write(out.path(), &files).unwrap();
    assert!(output::differences(out.path(), &files).unwrap().is_empty());
}
