//! What any program may have: questions in forms, child sessions, and the choice of a model.

use astrabox_acp_protocol::wire::Fields;
use astrabox_acp_protocol::{ConfigOption, Conversation, Dialect, UsageScope, Wish};
use astrabox_engine::line::{Effects, Powers};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A program of which nothing is known but that it speaks ACP.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Any {
    /// The model that the agent wants, until the program has it.
    model: Option<String>,
}

impl Any {
    pub(crate) fn new(model: String) -> Self {
        Self { model: Some(model) }
    }
}

impl Dialect for Any {
    const POWERS: Powers = Powers {
        interactions: true,
        permission_modes: true,
        child_run_control: true,
    };

    // Both programs that were tried count the turn, whatever ACP's schema says.
    const USAGE: UsageScope = UsageScope::Turn;

    fn initialize(&self, params: &mut Map<String, Value>) {
        if let Some(capabilities) = params.get_mut("clientCapabilities") {
            capabilities["elicitation"] = json!({"form": {}});
            capabilities["subagents"] = json!({});
        }
    }

    fn on_notification(
        &mut self,
        method: &str,
        _params: &Fields<'_>,
        _conversation: &mut Conversation,
        _effects: &mut Effects,
    ) -> bool {
        // How the program is logged in: with the placeholder that it was given.
        matches!(method, "auth/status_update" | "_auth/status_update")
    }

    /// codex-acp 2.6.0 tells of a call of an MCP server's tool by its input alone.
    fn tool_name(&self, call: &Fields<'_>) -> Option<String> {
        let input = call.fields("rawInput");
        let named = call.raw("name").is_some();
        let (server, tool) = (input.text("server")?, input.text("tool")?);
        (!named).then(|| format!("{server}.{tool}"))
    }

    /// Most programs are told their model by a variable; one that offers it as an option is told here.
    fn opened(&mut self, result: &Fields<'_>) -> Result<Vec<Wish>, String> {
        let Some(model) = self.model.take() else {
            return Ok(Vec::new());
        };
        let options = ConfigOption::all(result).into_iter();
        let wanted = options
            .filter(|option| option.category.as_deref() == Some("model"))
            .filter(|option| option.current.as_ref() != Some(&model))
            .find(|option| option.values.contains(&model));
        let wish = wanted.map(|option| Wish::Option {
            id: option.id,
            value: json!(model),
        });
        Ok(wish.into_iter().collect())
    }
}
