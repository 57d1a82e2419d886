//! What the plugin tells beyond ACP.

use std::collections::BTreeMap;

use astrabox_acp_protocol::wire::{Answer, Fields, INTERNAL_ERROR};
use astrabox_acp_protocol::{Conversation, Dialect, Ending, Saying, Speaker, Tokens, UsageScope};
use astrabox_engine::line::{Effects, Powers};
use astrabox_engine::{Error, ErrorKind, Result};
use astrabox_types::{
    ChildRun, ChildRunId, ChildRunState, InteractionAnswer, Presentation, Question,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The beginning of the plugin's methods.
const OWN: &str = "_astrabox/";
/// How many ended child runs are remembered, for what comes late of them.
const REMEMBERED: usize = 256;

/// What is open beside the conversation itself.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DshDialect {
    tools: Vec<String>,
    /// Sub-agents and commands in the background, by the program's ids.
    children: BTreeMap<String, Child>,
    /// Questions without an answer, by the ids of their requests.
    questions: BTreeMap<String, Vec<Asked>>,
}

/// A child run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Child {
    state: ChildRunState,
    title: Option<String>,
    /// The key of the call that began it.
    call: Option<String>,
}

/// A question, as far as its answer needs it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    id: String,
    options: Vec<String>,
}

impl Dialect for DshDialect {
    const POWERS: Powers = Powers {
        interactions: true,
        permission_modes: true,
        child_run_control: true,
    };
    const USAGE: UsageScope = UsageScope::Turn;
    const OWN_TURNS: bool = true;

    fn prompt(&mut self, params: &mut Map<String, Value>) {
        // The program puts the parts of a prompt together with nothing between them.
        let parts = params.get_mut("prompt").and_then(Value::as_array_mut);
        if let Some((_, before)) = parts.and_then(|parts| parts.split_last_mut()) {
            for part in before {
                if let Some(text) = part["text"].as_str() {
                    part["text"] = json!(format!("{text}\n\n"));
                }
            }
        }
    }

    fn on_notification(
        &mut self,
        method: &str,
        params: &Fields<'_>,
        conversation: &mut Conversation,
        effects: &mut Effects,
    ) -> bool {
        let Some(what) = method.strip_prefix(OWN) else {
            return false;
        };
        let child = speaker(params, conversation);
        match what {
            "message" => message(&child, params, conversation, effects),
            "dropped" => conversation.forget_pieces(&child),
            "child" => self.child_moved(params, conversation, effects),
            "background" => {
                if params.flag("running") == Some(true) {
                    effects.emit.background_opened();
                } else {
                    effects.emit.background_closed();
                }
            }
            "turn" => turn(params, conversation, effects),
            "tools" => self.tools = params.texts("names"),
            "retry" => retry(&child, params, conversation, effects),
            _ => return false,
        }
        true
    }

    fn on_request(
        &mut self,
        id: &str,
        method: &str,
        params: &Fields<'_>,
        conversation: &mut Conversation,
        effects: &mut Effects,
    ) -> bool {
        if method.strip_prefix(OWN) != Some("question") || !conversation.in_turn() {
            return false;
        }
        let questions = params.list("questions").into_iter().map(Fields::of);
        let questions: Vec<_> = questions.filter_map(|one| question(&one)).collect();
        let asked = questions.iter().map(|question| Asked {
            id: question.id.clone(),
            options: question.options.clone(),
        });
        let native = id.trim_matches('"').to_owned();
        self.questions.insert(native, asked.collect());
        let presentation = Presentation::Question { questions };
        let raw = params.pick(&["sessionId", "questions"]);
        conversation.ask(id, None, presentation, raw.text(), effects);
        true
    }

    fn on_answer(
        &mut self,
        tag: &str,
        answer: Answer<'_>,
        conversation: &mut Conversation,
        effects: &mut Effects,
    ) {
        if let Err(error) = answer {
            let message = format!("{tag}: {}", error.text());
            conversation.note("child_run_not_stopped", message, None, effects);
        }
    }

    fn on_prompt_answer(
        &mut self,
        answer: &Answer<'_>,
        conversation: &mut Conversation,
        effects: &mut Effects,
    ) {
        // A prompt that it does not take is answered with another error.
        if let Err(error) = answer
            && error.code == INTERNAL_ERROR
        {
            conversation.consume(effects);
        }
    }

    fn turn_ended(&mut self) {
        self.questions.clear();
    }

    fn answer(&mut self, native_id: &str, answer: &InteractionAnswer) -> Result<Value> {
        let asked = self.questions.get(native_id).map(Vec::as_slice);
        let result = answer_of(asked.unwrap_or_default(), answer)?;
        self.questions.remove(native_id);
        Ok(result)
    }

    fn stop_child(
        &mut self,
        run: &ChildRunId,
        conversation: &mut Conversation,
        effects: &mut Effects,
    ) -> Result<()> {
        let running = self.children.get(&run.0).is_some_and(Child::is_running);
        if !running {
            let text = format!("no child run `{}` is running", run.0);
            return Err(Error::new(ErrorKind::Unsupported, "stop child", text));
        }
        let mut params = conversation.params();
        params.insert("id".to_owned(), json!(run.0));
        conversation.call_own(&format!("{OWN}stop"), params, "stop", effects);
        Ok(())
    }

    fn tools(&self) -> Vec<String> {
        self.tools.clone()
    }

    fn exited(&mut self, effects: &mut Effects) {
        let running = self
            .children
            .iter_mut()
            .filter(|(_, child)| child.is_running());
        for (id, child) in running {
            child.state = ChildRunState::Stopped;
            effects.emit.child_run(child.fact(id), None);
        }
    }
}

impl DshDialect {
    /// A sub-agent or a command in the background began, moved or ended.
    fn child_moved(
        &mut self,
        params: &Fields<'_>,
        conversation: &mut Conversation,
        effects: &mut Effects,
    ) {
        let Some(id) = params.text("id") else {
            return;
        };
        let state = match params.text("state").as_deref() {
            Some("running") => ChildRunState::Running,
            Some("completed") => ChildRunState::Completed,
            Some("stopped") => ChildRunState::Stopped,
            _ => ChildRunState::Failed,
        };
        let parent = params.text("parent");
        let parent = parent.filter(|parent| !conversation.is_own(Some(parent)));
        let call = params.text("callId");
        let call = call.and_then(|call| conversation.call_key(&parent, &call));
        if self.children.len() >= REMEMBERED {
            self.children.retain(|_, child| child.is_running());
        }
        let child = self.children.entry(id.clone()).or_insert(Child {
            state,
            title: None,
            call: None,
        });
        child.state = state;
        child.title = params.text("title").or(child.title.take());
        child.call = call.or(child.call.take());
        if !child.is_running() {
            conversation.settle_messages(&Some(id.clone()), effects);
        }
        conversation.speak_for(&parent, effects);
        let native = params.pick(&["id", "parent", "state", "title", "callId"]);
        effects.emit.child_run(child.fact(&id), Some(native));
    }
}

impl Child {
    fn is_running(&self) -> bool {
        self.state == ChildRunState::Running
    }

    fn fact(&self, id: &str) -> ChildRun {
        ChildRun {
            id: ChildRunId(id.to_owned()),
            state: self.state,
            title: self.title.clone(),
            call_id: self.call.clone(),
        }
    }
}

/// The session that a notification is about, when it is not the conversation's own.
fn speaker(params: &Fields<'_>, conversation: &Conversation) -> Speaker {
    let session = params.text("sessionId");
    session.filter(|session| !conversation.is_own(Some(session)))
}

/// A message is complete.
fn message(
    child: &Speaker,
    params: &Fields<'_>,
    conversation: &mut Conversation,
    effects: &mut Effects,
) {
    let saying = match params.text("kind").as_deref() {
        Some("reasoning") => Saying::Reasoning,
        _ => Saying::Text,
    };
    let id = params.text("messageId");
    let text = params.text("text").unwrap_or_default();
    conversation.whole(child, saying, id.as_deref(), text, None, effects);
}

/// The program begins or ends something that nobody asked for.
fn turn(params: &Fields<'_>, conversation: &mut Conversation, effects: &mut Effects) {
    if params.text("state").as_deref() == Some("started") {
        return conversation.begin_own_turn();
    }
    let reason = params.fields("reason");
    let ending = match reason.text("kind").as_deref() {
        Some("completed") => Ending::Completed,
        Some("aborted" | "interrupted") => Ending::Interrupted,
        Some("max-tokens") => {
            Ending::failed("max_tokens", "the model's answer was cut at its limit")
        }
        kind => {
            let message = reason.fields("error").text("message");
            let kind = kind.unwrap_or("no reason");
            Ending::failed(
                "engine_error",
                message.unwrap_or_else(|| format!("the turn ended with {kind}")),
            )
        }
    };
    let used = Tokens::of(&params.fields("usage"));
    let used = used.map(|used| (used, params.json("usage")));
    conversation.end_own_turn_having(&ending, UsageScope::Turn, used, effects);
}

/// The model is asked again.
fn retry(
    child: &Speaker,
    params: &Fields<'_>,
    conversation: &mut Conversation,
    effects: &mut Effects,
) {
    let failure = params.fields("failure");
    let message = failure.text("message").unwrap_or_default();
    let (retry, of) = (params.number("retry"), params.number("maxRetries"));
    let message = format!(
        "the model is asked again ({} of {}): {message}",
        retry.unwrap_or_default(),
        of.unwrap_or_default()
    );
    conversation.speak_for(child, effects);
    let native = params.pick(&["retry", "maxRetries", "failure"]);
    conversation.note("api_retry", message, Some(native), effects);
}

/// A question of `ask_user_question`.
fn question(fields: &Fields<'_>) -> Option<Question> {
    let options = fields.list("options").into_iter().map(Fields::of);
    let question = fields.text("question").unwrap_or_default();
    Some(Question {
        id: fields.text("id")?,
        header: fields.text("header"),
        question: match fields.text("detail") {
            Some(detail) => format!("{question}\n\n{detail}"),
            None => question,
        },
        options: options.filter_map(|option| option.text("label")).collect(),
        multi_select: fields.flag("multiSelect") == Some(true),
        allow_free_text: true,
    })
}

/// A person's answer, as the plugin hands it to the tool.
fn answer_of(asked: &[Asked], answer: &InteractionAnswer) -> Result<Value> {
    let invalid = |text: String| Error::new(ErrorKind::InvalidAnswer, "answer", text);
    match answer {
        InteractionAnswer::Reply { answers } => {
            if let Some(id) = answers
                .keys()
                .find(|id| !asked.iter().any(|one| one.id == **id))
            {
                return Err(invalid(format!("no question has the id `{id}`")));
            }
            let answers = asked.iter().map(|one| {
                let given = answers.get(&one.id).map(Vec::as_slice).unwrap_or_default();
                let (selected, custom): (Vec<_>, Vec<_>) =
                    given.iter().partition(|text| one.options.contains(text));
                let mut answer = json!({"id": one.id, "selected": selected});
                if !custom.is_empty() {
                    let custom: Vec<_> = custom.into_iter().map(String::as_str).collect();
                    answer["custom"] = json!(custom.join("\n"));
                }
                answer
            });
            Ok(json!({"answers": answers.collect::<Vec<_>>()}))
        }
        InteractionAnswer::Decline { comment } => Ok(json!({"declined": true, "comment": comment})),
        InteractionAnswer::Choose { .. } => {
            Err(invalid("a question is answered by a reply".to_owned()))
        }
    }
}
