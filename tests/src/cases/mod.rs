//! What every agent program does alike, as cases that take the program. A test file names the cases that it runs
//! with [`cases!`](crate::cases!).

pub mod approvals;
pub mod children;
pub mod cores;
pub mod credentials;
pub mod lives;
pub mod tooling;
pub mod tools;
pub mod turns;

/// Makes a test of each named case of a module, for one program.
#[macro_export]
macro_rules! cases {
    ($program:ident, $module:ident: $($case:ident),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $case() {
                $crate::cases::$module::$case(&$crate::$program).await;
            }
        )+
    };
}
