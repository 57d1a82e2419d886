//! An agent's repository is the platform's affair: one program is enough.

#[tokio::test]
async fn a_repository_is_cloned_once_and_what_is_there_stays() {
    let program = &astrabox_tests::CODEX;
    astrabox_tests::cases::credentials::a_repository_is_cloned_once_and_what_is_there_stays(
        program,
    )
    .await;
}
