//! Credentials that change while a session lives.

use std::time::Duration;

use astrabox_types::EventPayload;
use tokio::time::timeout;

use super::draft::Draft;
use super::owner::Owner;
use crate::Result;
use crate::manager::{Bearer, Missing};

/// How long fresh values may take before a turn: a refresh of a token takes at most 30 s.
const BEFORE_TURN: Duration = Duration::from_secs(35);

impl Owner {
    /// Gives the boundary what the session's credentials are now. Without a sandbox there is nothing to give: the next
    /// start does it.
    pub(super) async fn renew_credentials(&mut self) -> Result<()> {
        let Some(sandbox) = self.row.sandbox_id else {
            return Ok(());
        };
        let bearer = Bearer {
            session_id: self.id,
            kind: self.row.session.kind,
            agent: &self.agent.spec,
            environment: &self.environment.spec,
            sandbox,
        };
        self.manager
            .give_credentials(bearer, Missing::LeaveOut)
            .await?;
        Ok(())
    }

    /// Sees to it that tokens that end by themselves last into the turn that begins. A turn begins without them too:
    /// requests with them are refused at the boundary, and the journal tells why.
    pub(super) async fn renew_before_turn(&mut self, draft: &mut Draft) -> Result<()> {
        if self.agent.spec.vault_ids.is_empty()
            || !self
                .manager
                .has_ending_credentials(&self.agent.spec)
                .await?
        {
            return Ok(());
        }
        let why = match timeout(BEFORE_TURN, self.renew_credentials()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it took too long".to_owned(),
        };
        draft.event(
            None,
            EventPayload::DiagnosticRaw {
                topic: "credentials_not_renewed".to_owned(),
                message: why,
            },
        );
        Ok(())
    }
}
