//! Credentials that change while a session lives.

use std::time::Duration;

use astrabox_types::{AssignmentId, ErrorReason, EventPayload, SandboxId, SessionId};
use tokio::time::timeout;

use super::draft::Draft;
use super::owner::Owner;
use crate::manager::{Bearer, Missing};
use crate::{Error, Result};

/// How long fresh values may take: a refresh of a token takes at most 30 s.
const RENEW_WITHIN: Duration = Duration::from_secs(35);

/// The id of the sandbox that this decision makes: the same however often it is begun anew.
pub(super) fn new_sandbox(session: SessionId, assignment: &AssignmentId) -> SandboxId {
    SandboxId::derived(session.uuid(), &[assignment.as_str()])
}

impl Owner {
    /// Gives the boundary what the session's credentials are now. Without a sandbox there is nothing to give: the next
    /// start does it.
    pub(super) async fn renew_credentials(&mut self) -> Result<()> {
        // One that is being made has its id from the decision to make it.
        let making = || {
            let assignment = self.row.assignment_id.as_ref()?;
            Some(new_sandbox(self.id, assignment))
        };
        let Some(sandbox) = self.row.sandbox_id.or_else(making) else {
            return Ok(());
        };
        let bearer = Bearer {
            session_id: self.id,
            kind: self.row.session.kind,
            agent: &self.agent.spec,
            environment: &self.environment.spec,
            sandbox,
        };
        let given = self.manager.give_credentials(bearer, Missing::LeaveOut);
        let given = match timeout(RENEW_WITHIN, given).await {
            Ok(given) => given.map_err(Error::from),
            Err(_) => {
                // One of them may have been archived; which, nobody has read.
                let taken = self.manager.take_credentials_away(sandbox).await;
                let late = "the credentials could not be read in time";
                taken.and(Err(Error::new(
                    ErrorReason::VaultCredentialUnavailable,
                    late,
                )))
            }
        };
        self.credentials_stale = given.is_err();
        given.map(drop)
    }

    /// Sees to it that tokens that end by themselves last into the turn that begins. A turn begins without them too:
    /// requests with them are refused at the boundary, and the journal tells why.
    pub(super) async fn renew_before_turn(&mut self, draft: &mut Draft) {
        let renewed = async {
            let ends = self
                .manager
                .has_ending_credentials(&self.agent.spec)
                .await?;
            match ends || self.credentials_stale {
                true => self.renew_credentials().await,
                false => Ok(()),
            }
        };
        let Err(error) = renewed.await else {
            return;
        };
        draft.event(
            None,
            EventPayload::DiagnosticRaw {
                topic: "credentials_not_renewed".to_owned(),
                message: error.to_string(),
            },
        );
    }
}
