use super::check_tree;
use crate::tree;

#[test]
fn the_tree_keeps_its_rules() {
    let findings = check_tree(&tree::root()).unwrap();
    let said: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert!(said.is_empty(), "\n{}", said.join("\n"));
}
