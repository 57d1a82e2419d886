use super::*;

fn config(folder: &tempfile::TempDir) -> RoleConfig {
    RoleConfig {
        run_dir: folder.path().join("run"),
        audit_dir: folder.path().join("audit"),
        authority_dir: folder.path().join("authority"),
        egress: EgressConfig::default(),
    }
}

fn embedded(config: RoleConfig) -> EgressRole {
    EgressRole::build_embedded(config, Arc::new(SystemResolver::default())).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_role_that_nobody_uses_ends_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder);
    let grace = config.egress.orphan_grace;
    let socket = config.socket();
    let began = Instant::now();
    let exit = embedded(config).run(CancellationToken::new()).await;
    assert_eq!(exit.unwrap(), RoleExit::Idle);
    assert_eq!(began.elapsed(), grace);
    assert!(!socket.exists());
}

#[tokio::test(start_paused = true)]
async fn a_role_whose_directory_is_removed_ends() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder);
    let role = embedded(config.clone());
    std::fs::remove_dir_all(&config.run_dir).unwrap();
    let exit = role.run(CancellationToken::new()).await;
    assert_eq!(exit.unwrap(), RoleExit::RootRemoved);
}

#[test]
fn a_configuration_is_read_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder);
    let path = folder.path().join("role.json");
    std::fs::write(&path, serde_json::to_vec(&config).unwrap()).unwrap();
    assert_eq!(RoleConfig::read(&path).unwrap(), config);
    std::fs::write(
        &path,
        r#"{"run_dir": "/a", "audit_dir": "/b", "authority_dir": "/c", "more": 1}"#,
    )
    .unwrap();
    let error = RoleConfig::read(&path).unwrap_err();
    assert!(matches!(error, RoleError::Unreadable(_)));
    assert_eq!(error.exit_code(), 1);
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(RoleConfig::read(&path), Err(RoleError::Io { .. })));
}

#[test]
fn a_wrong_setting_stops_the_role_before_it_takes_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(&folder);
    config.egress.max_connections = 0;
    let run_dir = config.run_dir.clone();
    let built = EgressRole::build_embedded(config, Arc::new(SystemResolver::default()));
    assert!(matches!(built, Err(RoleError::Config(_))));
    assert!(!run_dir.exists());
}
