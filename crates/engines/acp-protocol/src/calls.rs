//! Our requests and their answers, and the opening of the conversation.

use astrabox_engine::line::Effects;
use astrabox_engine::{Error, ErrorKind, Result};
use serde_json::{Map, Value, json};

use crate::dialect::Dialect;
use crate::protocol::AcpProtocol;
use crate::settings::{ConfigOption, Modes, Offers, SetBy, Wish};
use crate::state::{Asked, Conversation, Phase, Unbound};
use crate::wire::{self, AUTH_REQUIRED, Answer, Fields, RpcError, verbatim};

/// The version of ACP that is spoken.
const PROTOCOL_VERSION: u64 = 1;

impl Conversation {
    pub(crate) fn call(
        &mut self,
        method: &str,
        params: Map<String, Value>,
        asked: Asked,
        effects: &mut Effects,
    ) -> String {
        self.sent += 1;
        let id = format!("{}-{}", self.epoch, self.sent);
        effects.send(wire::request(&id, method, &Value::Object(params)));
        self.asked.insert(id.clone(), asked);
        id
    }

    /// Sends a request of the dialect's own; its answer comes with `tag` to
    /// [`Dialect::on_answer`](crate::Dialect::on_answer).
    pub fn call_own(
        &mut self,
        method: &str,
        params: Map<String, Value>,
        tag: &str,
        effects: &mut Effects,
    ) {
        let tag = tag.to_owned();
        self.call(method, params, Asked::Dialect { tag }, effects);
    }

    /// Parameters with the conversation's id in them.
    #[must_use]
    pub fn params(&self) -> Map<String, Value> {
        let session = self.session().unwrap_or_default();
        wire::object(json!({"sessionId": session}))
    }

    fn wish_line(&self, wish: &Wish) -> std::result::Result<(String, Map<String, Value>), String> {
        let mut params = self.params();
        match wish {
            Wish::Mode(mode) => {
                self.modes.demand(mode)?;
                match &self.modes.set_by {
                    SetBy::Option(id) => {
                        params.extend(wire::object(json!({"configId": id, "value": mode})));
                        Ok(("session/set_config_option".to_owned(), params))
                    }
                    SetBy::Mode | SetBy::Nothing => {
                        params.insert("modeId".to_owned(), json!(mode));
                        Ok(("session/set_mode".to_owned(), params))
                    }
                }
            }
            Wish::Option { id, value } => {
                params.extend(wire::object(json!({"configId": id, "value": value})));
                if value.is_boolean() {
                    params.insert("type".to_owned(), json!("boolean"));
                }
                Ok(("session/set_config_option".to_owned(), params))
            }
            Wish::Call {
                method,
                params: own,
            } => {
                params.extend(own.clone());
                Ok((method.clone(), params))
            }
        }
    }

    pub(crate) fn ask_for_mode(&mut self, mode: &str, effects: &mut Effects) -> Result<()> {
        let invalid = |text| Error::new(ErrorKind::InvalidConfiguration, "choose mode", text);
        let wish = Wish::Mode(mode.to_owned());
        let (method, params) = self.wish_line(&wish).map_err(invalid)?;
        let mode = mode.to_owned();
        self.call(&method, params, Asked::SetMode { mode }, effects);
        Ok(())
    }

    /// Sets the next thing that is to be set, or is done with the opening.
    fn next_wish(&mut self, effects: &mut Effects) {
        let wish = self
            .settings
            .as_mut()
            .and_then(|settings| settings.wishes.pop_front());
        let Some(wish) = wish else {
            if let Phase::Opening {
                session: Some(session),
                ..
            } = &self.phase
            {
                let session = session.clone();
                self.phase = Phase::Bound { session };
                self.settings = None;
            }
            return;
        };
        match self.wish_line(&wish) {
            Ok((method, params)) => {
                self.call(&method, params, Asked::Wish { wish }, effects);
            }
            Err(text) => self.unbound(Unbound::Configuration, text),
        }
    }

    fn wish_answered(&mut self, wish: &Wish, answer: Answer<'_>, effects: &mut Effects) {
        let what = match wish {
            Wish::Mode(mode) => format!("permission mode `{mode}`"),
            Wish::Option { id, value } => format!("option `{id}` = {value}"),
            Wish::Call { method, .. } => method.clone(),
        };
        match answer {
            Ok(result) => {
                if let Wish::Mode(mode) = wish {
                    self.modes.current = Some(mode.clone());
                }
                let fields = Fields::of(result);
                if fields.has("configOptions") && matches!(self.modes.set_by, SetBy::Option(_)) {
                    self.modes = Modes::of(&fields);
                }
                self.next_wish(effects);
            }
            Err(error) => {
                let text = format!("{what}: {}", error.text());
                self.unbound(Unbound::Configuration, text);
            }
        }
    }

    /// Refuses options that the program does not have, before it is asked.
    fn demand_options(&self, opened: &Fields<'_>) -> std::result::Result<(), String> {
        let known = ConfigOption::all(opened);
        let wishes = self.settings.iter().flat_map(|settings| &settings.wishes);
        for wish in wishes {
            let Wish::Option { id, .. } = wish else {
                continue;
            };
            if !known.iter().any(|option| option.id == *id) {
                let names: Vec<_> = known.iter().map(|option| option.id.as_str()).collect();
                let names = names.join(", ");
                return Err(format!("no option `{id}`; there are: {names}"));
            }
        }
        Ok(())
    }
}

impl<D: Dialect> AcpProtocol<D> {
    pub(crate) fn initialize(&mut self, expected: Option<&str>, effects: &mut Effects) {
        let expected = expected.map(str::to_owned);
        self.conversation.phase = Phase::Opening {
            expected,
            replays: false,
            session: None,
        };
        let client =
            json!({"name": "astrabox", "title": "AstraBox", "version": env!("CARGO_PKG_VERSION")});
        let serves = self.conversation.serving.is_some();
        let files = json!({"readTextFile": serves, "writeTextFile": serves});
        let mut params = wire::object(json!({
            "protocolVersion": PROTOCOL_VERSION,
            "clientInfo": client,
            "clientCapabilities": {
                "fs": files,
                "terminal": serves,
                "session": {"notices": {}, "compaction": {}},
            },
        }));
        self.dialect.initialize(&mut params);
        self.conversation
            .call("initialize", params, Asked::Initialize, effects);
    }

    pub(crate) fn answered(
        &mut self,
        id: &str,
        answer: Answer<'_>,
        line: &str,
        effects: &mut Effects,
    ) {
        let conversation = &mut self.conversation;
        let Some(asked) = conversation.asked.remove(id) else {
            let message = format!("an answer to `{id}`, which was not asked");
            return conversation.note("unknown_answer", message, Some(verbatim(line)), effects);
        };
        match asked {
            Asked::Initialize => self.initialized(answer, effects),
            Asked::Open => self.opened(answer, effects),
            Asked::Wish { wish } => conversation.wish_answered(&wish, answer, effects),
            Asked::Prompt => self.prompt_answered(id, answer, effects),
            Asked::SetMode { mode } => match answer {
                Ok(_) => conversation.modes.current = Some(mode),
                Err(error) => {
                    let message = format!("mode `{mode}`: {}", error.text());
                    conversation.note("permission_mode_refused", message, None, effects);
                }
            },
            Asked::Dialect { tag } => {
                self.dialect.on_answer(&tag, answer, conversation, effects);
            }
            Asked::Nothing => {}
        }
    }

    fn initialized(&mut self, answer: Answer<'_>, effects: &mut Effects) {
        let conversation = &mut self.conversation;
        let result = match answer {
            Ok(result) => Fields::of(result),
            Err(error) => return conversation.unbound(Unbound::Protocol, error.text()),
        };
        let version = result.number("protocolVersion");
        if version != Some(PROTOCOL_VERSION) {
            let version = version.map_or("none".to_owned(), |version| version.to_string());
            let text = format!("the program speaks version {version} of ACP, not version 1");
            return conversation.unbound(Unbound::Protocol, text);
        }
        let info = result.fields("agentInfo");
        conversation.program = info.text("name").map(|name| {
            let version = info.text("version").unwrap_or_default();
            format!("{name} {version}").trim_end().to_owned()
        });
        conversation.offers = Offers::of(&result);
        if let Err(text) = self.dialect.initialized(&result) {
            return conversation.unbound(Unbound::Protocol, text);
        }
        self.open(effects);
    }

    fn open(&mut self, effects: &mut Effects) {
        let conversation = &mut self.conversation;
        let Phase::Opening { expected, .. } = conversation.phase.clone() else {
            return;
        };
        let offers = &conversation.offers;
        let method = match &expected {
            None => "session/new",
            Some(_) if offers.resume => "session/resume",
            Some(_) if offers.load => "session/load",
            Some(_) => {
                let text = "the program cannot take up a conversation again";
                return conversation.unbound(Unbound::ConversationLost, text);
            }
        };
        let settings = conversation.settings.as_ref();
        let mut params = match settings.map(|settings| settings.opening(offers)) {
            Some(Ok(params)) => params,
            Some(Err(text)) => return conversation.unbound(Unbound::Configuration, text),
            None => Map::new(),
        };
        if let Some(expected) = &expected {
            params.insert("sessionId".to_owned(), json!(expected));
        }
        self.dialect.open(method, &mut params);
        conversation.phase = Phase::Opening {
            session: expected.clone(),
            expected,
            replays: method == "session/load",
        };
        conversation.call(method, params, Asked::Open, effects);
    }

    fn opened(&mut self, answer: Answer<'_>, effects: &mut Effects) {
        let conversation = &mut self.conversation;
        let Phase::Opening { expected, .. } = conversation.phase.clone() else {
            return;
        };
        let result = match answer {
            Ok(result) => Fields::of(result),
            Err(error) => {
                let why = refused(&error, expected.is_some());
                return conversation.unbound(why, error.text());
            }
        };
        let session = match (result.text("sessionId"), &expected) {
            (Some(told), Some(expected)) if told != *expected => {
                let text = "the program opened another conversation than the one expected";
                return conversation.unbound(Unbound::ConversationLost, text);
            }
            (Some(told), _) => told,
            // The answer to `session/load` and `session/resume` is only that it is this one.
            (None, Some(expected)) => expected.clone(),
            (None, None) => {
                let text = "the program opened a conversation without an id";
                return conversation.unbound(Unbound::Protocol, text);
            }
        };
        conversation.phase = Phase::Opening {
            expected,
            replays: false,
            session: Some(session),
        };
        conversation.modes = Modes::of(&result);
        match self.dialect.opened(&result) {
            Ok(wishes) => {
                if let Err(text) = conversation.demand_options(&result) {
                    return conversation.unbound(Unbound::Configuration, text);
                }
                conversation.wish(wishes);
            }
            Err(text) => return conversation.unbound(Unbound::Configuration, text),
        }
        conversation.next_wish(effects);
    }
}

impl Conversation {
    /// What the dialect wants first, then the agent's options, then the mode.
    fn wish(&mut self, first: Vec<Wish>) {
        let current = self.modes.current.clone();
        if let Some(settings) = &mut self.settings {
            for wish in first.into_iter().rev() {
                settings.wishes.push_front(wish);
            }
            let mode = settings.mode.take();
            let mode = mode.filter(|mode| current.as_ref() != Some(mode));
            settings.wishes.extend(mode.map(Wish::Mode));
        }
    }
}

/// Why a conversation was not opened.
fn refused(error: &RpcError, resuming: bool) -> Unbound {
    match (error.code, resuming) {
        (AUTH_REQUIRED, _) => Unbound::Start,
        (_, true) => Unbound::ConversationLost,
        (_, false) => Unbound::Start,
    }
}
