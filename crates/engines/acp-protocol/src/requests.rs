//! Requests of the program, and their answers.

use astrabox_engine::line::Effects;
use astrabox_engine::{Error, ErrorKind, Result};
use astrabox_types::{Choice, InteractionAnswer, Presentation};
use serde_json::{Value, json};

use crate::dialect::Dialect;
use crate::elicitation;
use crate::protocol::AcpProtocol;
use crate::state::{Answers, Conversation, OpenRequest, Speaker};
use crate::wire::{self, Fields, METHOD_NOT_FOUND, REQUEST_CANCELLED, plain, verbatim};

impl<D: Dialect> AcpProtocol<D> {
    pub(crate) fn requested(
        &mut self,
        id: &str,
        method: &str,
        params: &str,
        effects: &mut Effects,
    ) {
        let fields = Fields::of(params);
        if method == "session/request_permission" {
            return self.permission_asked(id, &fields, params, effects);
        }
        let conversation = &mut self.conversation;
        if method == "elicitation/create" {
            return conversation.form_asked(id, &fields, params, effects);
        }
        if conversation.serve(id, method, &fields, effects) {
            return;
        }
        if !self
            .dialect
            .on_request(id, method, &fields, conversation, effects)
        {
            // Unanswered, it would be waited for (EN13).
            let message = format!("`{method}` is not supported here");
            effects.send(wire::error(id, METHOD_NOT_FOUND, &message));
            conversation.note("unknown_request", method, Some(verbatim(params)), effects);
        }
    }

    fn permission_asked(
        &mut self,
        id: &str,
        fields: &Fields<'_>,
        params: &str,
        effects: &mut Effects,
    ) {
        let conversation = &mut self.conversation;
        let session = fields.text("sessionId");
        let child = session.filter(|session| !conversation.is_own(Some(session)));
        let native = Some(verbatim(params));
        if child.is_none() && !conversation.speaks(effects) {
            // A question would be a turn that nobody can say the end of (EN9).
            effects.send(wire::answer(id, &cancelled()));
            let message =
                "it asks for a permission while no turn runs; it was told that nobody answers";
            return conversation.note("permission_refused", message, native, effects);
        }
        conversation.settle_messages(&child, effects);
        let call = fields.fields("toolCall");
        let name = self.dialect.tool_name(&call);
        let known = conversation.call_asked(&child, &call, name.clone(), effects);
        let (call_id, tool, input) = match known {
            Some((key, name, input)) => (Some(key), name, input),
            None => (None, named(&call, name), input(&call)),
        };
        let options = fields.list("options").into_iter().map(Fields::of);
        let options: Vec<_> = options
            .filter_map(|option| {
                let text = |key| option.text(key).unwrap_or_default();
                Some((option.text("optionId")?, text("name"), text("kind")))
            })
            .collect();
        let choices = options.iter().map(|(id, name, kind)| Choice {
            id: id.clone(),
            label: name.clone(),
            allows: kind.starts_with("allow"),
        });
        let mut presentation = Presentation::ToolApproval {
            call_id,
            tool,
            input,
            reason: None,
            choices: choices.collect(),
        };
        self.dialect.present(fields, &mut presentation);
        let options = options.into_iter().map(|(id, _, kind)| (id, kind));
        let answers = Answers::Options(options.collect());
        conversation.asks(id, child, presentation, answers, params, effects);
    }

    pub(crate) fn answer_request(
        &mut self,
        native_id: &str,
        answer: &InteractionAnswer,
        effects: &mut Effects,
    ) -> Result<()> {
        let Some(open) = self.conversation.requests.get(native_id) else {
            let text = format!("no open question has the id `{native_id}`");
            return Err(invalid(text));
        };
        let result = match &open.answers {
            Answers::Options(options) => outcome(options, answer)?,
            Answers::Form(fields) => elicitation::filled(fields, answer)?,
            Answers::Dialect => self.dialect.answer(native_id, answer)?,
        };
        effects.send(wire::answer(&open.id, &result));
        self.conversation.requests.remove(native_id);
        Ok(())
    }
}

impl Conversation {
    /// Asks a person what the program's request `id` wants to know; the dialect makes the result of the answer. A
    /// turn must run, or a child run ask.
    pub fn ask(
        &mut self,
        id: &str,
        child: Speaker,
        presentation: Presentation,
        params: &str,
        effects: &mut Effects,
    ) {
        self.consume(effects);
        self.settle_messages(&child, effects);
        self.asks(id, child, presentation, Answers::Dialect, params, effects);
    }

    /// The program wants a form filled in.
    fn form_asked(&mut self, id: &str, fields: &Fields<'_>, params: &str, effects: &mut Effects) {
        let session = fields.text("sessionId");
        let child = session.filter(|session| !self.is_own(Some(session)));
        let turn = child.is_some() || self.speaks(effects);
        match elicitation::form(fields).filter(|_| turn) {
            Some((questions, form)) => {
                self.settle_messages(&child, effects);
                let presentation = Presentation::Question { questions };
                let answers = Answers::Form(form);
                self.asks(id, child, presentation, answers, params, effects);
            }
            // A page to visit, or a question while nobody could say when its turn is over (EN9).
            None => {
                effects.send(wire::answer(id, &json!({"action": "cancel"})));
                let mode = fields.text("mode").unwrap_or_default();
                let message =
                    format!("it asks in the form `{mode}`; it was told that nobody answers");
                self.note("question_refused", message, Some(verbatim(params)), effects);
            }
        }
    }

    fn asks(
        &mut self,
        id: &str,
        child: Speaker,
        presentation: Presentation,
        answers: Answers,
        params: &str,
        effects: &mut Effects,
    ) {
        self.speak_for(&child, effects);
        let native_id = plain(id).to_owned();
        let native = Some(verbatim(params));
        effects
            .emit
            .interaction_requested(&native_id, presentation, native);
        let id = id.to_owned();
        self.requests
            .insert(native_id, OpenRequest { id, child, answers });
    }

    /// The program no longer waits for an answer.
    pub(crate) fn request_cancelled(&mut self, fields: &Fields<'_>, effects: &mut Effects) {
        let id = plain(fields.raw("requestId").unwrap_or_default()).to_owned();
        if let Some(open) = self.requests.remove(&id) {
            effects.send(wire::error(&open.id, REQUEST_CANCELLED, "cancelled"));
            let reason = "the program no longer waits for it";
            effects.emit.interaction_withdrawn(&id, reason);
        }
    }

    /// Closes open questions, and tells the program that nobody answers. Those of child runs outlive the turn.
    pub(crate) fn cancel_requests(&mut self, reason: &str, effects: &mut Effects) {
        self.cancel_those(|open| open.child.is_none(), reason, effects);
    }

    fn cancel_those(
        &mut self,
        these: impl Fn(&OpenRequest) -> bool,
        reason: &str,
        effects: &mut Effects,
    ) {
        for (id, open) in self.requests.extract_if(.., |_, open| these(open)) {
            let line = match open.answers {
                Answers::Options(_) => wire::answer(&open.id, &cancelled()),
                Answers::Form(_) => wire::answer(&open.id, &json!({"action": "cancel"})),
                Answers::Dialect => wire::error(&open.id, REQUEST_CANCELLED, "cancelled"),
            };
            effects.send(line);
            effects.emit.interaction_withdrawn(&id, reason);
        }
    }

    /// A child run is over: what it said is whole, what it called is told, and what it asked needs no answer.
    pub(crate) fn child_settled(&mut self, run: &str, reason: &str, effects: &mut Effects) {
        let child = Some(run.to_owned());
        self.settle_messages(&child, effects);
        self.tell_calls_of(&child, effects);
        self.cancel_those(|open| open.child == child, reason, effects);
    }

    /// Closes every open question of a program that is gone.
    pub(crate) fn withdraw_all(&mut self, reason: &str, effects: &mut Effects) {
        for id in std::mem::take(&mut self.requests).into_keys() {
            effects.emit.interaction_withdrawn(&id, reason);
        }
    }
}

/// The name of a tool whose call is not known.
fn named(call: &Fields<'_>, name: Option<String>) -> String {
    let kind = call.text("kind").filter(|kind| kind != "other");
    name.or_else(|| call.text("name"))
        .or(kind)
        .or_else(|| call.text("title"))
        .unwrap_or_else(|| "other".to_owned())
}

fn input(call: &Fields<'_>) -> astrabox_types::Json {
    call.json("rawInput")
        .unwrap_or_else(|| call.pick(&["title", "content", "locations"]))
}

fn cancelled() -> Value {
    json!({"outcome": {"outcome": "cancelled"}})
}

fn selected(option: &str) -> Value {
    json!({"outcome": {"outcome": "selected", "optionId": option}})
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidAnswer, "answer", text)
}

/// What a person's answer is in the program's words.
fn outcome(options: &[(String, String)], answer: &InteractionAnswer) -> Result<Value> {
    match answer {
        InteractionAnswer::Choose { input: Some(_), .. } => {
            Err(invalid("the program takes no other input for a call"))
        }
        InteractionAnswer::Choose { choice_id, .. } => {
            if options.iter().any(|(id, _)| id == choice_id) {
                return Ok(selected(choice_id));
            }
            let offered: Vec<_> = options.iter().map(|(id, _)| id.as_str()).collect();
            let offered = offered.join(", ");
            Err(invalid(format!(
                "no choice `{choice_id}`; offered: {offered}"
            )))
        }
        InteractionAnswer::Decline { .. } => {
            let reject = |wanted: &str| options.iter().find(|(_, kind)| kind == wanted);
            let option = reject("reject_once").or_else(|| reject("reject_always"));
            Ok(option.map_or_else(cancelled, |(id, _)| selected(id)))
        }
        InteractionAnswer::Reply { .. } => Err(invalid("one of the choices is wanted, not a text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_of_the_programs_options() {
        let options = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter()
                .map(|(id, kind)| ((*id).to_owned(), (*kind).to_owned()))
                .collect()
        };
        let all = options(&[
            ("yes", "allow_once"),
            ("never", "reject_always"),
            ("no", "reject_once"),
        ]);
        let choose = |id: &str, input: Option<&str>| InteractionAnswer::Choose {
            choice_id: id.to_owned(),
            comment: None,
            input: input.map(str::to_owned),
        };
        let decline = InteractionAnswer::Decline { comment: None };
        for (options, answer, expected) in [
            (&all, choose("yes", None), Some(selected("yes"))),
            (&all, choose("yes", Some("{}")), None),
            (&all, choose("maybe", None), None),
            (&all, decline.clone(), Some(selected("no"))),
            (
                &options(&[("yes", "allow_once"), ("never", "reject_always")]),
                decline.clone(),
                Some(selected("never")),
            ),
            (
                &options(&[("yes", "allow_once")]),
                decline,
                Some(cancelled()),
            ),
            (
                &all,
                InteractionAnswer::Reply {
                    answers: std::collections::BTreeMap::new(),
                },
                None,
            ),
        ] {
            let told = outcome(options, &answer).ok();
            assert_eq!(told, expected, "{answer:?}");
        }
    }
}
