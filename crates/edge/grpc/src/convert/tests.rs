use std::collections::BTreeMap;

use astrabox_proto::v1;
use astrabox_types::{
    ChildRun, ChildRunId, ChildRunState, Choice, ContentPart, Delta, DeltaChannel, ErrorReason,
    EventId, EventPayload, FileChangeKind, ImageMediaType, InputId, Interaction, InteractionAnswer,
    InteractionId, JournalEvent, Json, MessageKind, Presentation, Question, SessionId,
    SessionState, Timestamp, TurnFailure, TurnId, TurnOrigin, TurnOutcome, Usage,
};

use super::{event, from_proto, interaction, to_proto};

fn journal(payload: EventPayload) -> v1::Event {
    event::to_proto(JournalEvent {
        id: EventId::new(),
        session_id: SessionId::new(),
        seq: 3,
        turn_id: Some(TurnId::new()),
        child_run: None,
        at: Timestamp::UNIX_EPOCH,
        payload,
        native: Some(Json::parse(r#"{"b":1.0}"#).expect("JSON")),
    })
    .expect("it converts")
}

fn usage() -> Usage {
    Usage {
        input_tokens: Some(0),
        cached_input_tokens: None,
        output_tokens: Some(7),
        reasoning_tokens: None,
    }
}

fn json() -> Json {
    Json::parse(r#"{"cmd":["ls" , 1e2]}"#).expect("JSON")
}

fn interaction() -> Interaction {
    Interaction {
        id: InteractionId::new(),
        presentation: Presentation::Decision {
            body: "go on?".into(),
            choices: vec![Choice {
                id: "y".into(),
                label: "Yes".into(),
                allows: true,
            }],
        },
    }
}

/// One of each kind of payload, with the name that its wire field must have.
fn payloads() -> Vec<EventPayload> {
    vec![
        EventPayload::SessionStatus {
            state: SessionState::Busy,
            reason: Some("why".into()),
        },
        EventPayload::TurnStarted {
            origin: TurnOrigin::Input {
                input_id: InputId::new(),
            },
        },
        EventPayload::TurnEnded {
            outcome: TurnOutcome::Failed {
                failure: TurnFailure {
                    reason: "r".into(),
                    message: "m".into(),
                },
            },
            usage: Some(usage()),
        },
        EventPayload::InputAccepted {
            input_id: InputId::new(),
            content: vec![ContentPart::Image {
                media_type: ImageMediaType::Png,
                data: "AQID".into(),
            }],
        },
        EventPayload::InputConsumed {
            input_id: InputId::new(),
        },
        EventPayload::MessageCompleted {
            kind: MessageKind::Reasoning,
            text: "t".into(),
            truncated: true,
        },
        EventPayload::ToolCall {
            call_id: "c".into(),
            name: "shell".into(),
            input: json(),
        },
        EventPayload::ToolResult {
            call_id: "c".into(),
            name: "shell".into(),
            output: json(),
            is_error: true,
        },
        EventPayload::InteractionRequested {
            interaction: interaction(),
        },
        EventPayload::InteractionResolved {
            interaction_id: InteractionId::new(),
            answer: InteractionAnswer::Decline { comment: None },
            actor: "uid:0".into(),
        },
        EventPayload::InteractionExpired {
            interaction_id: InteractionId::new(),
            reason: "interrupted".into(),
        },
        EventPayload::FileChanged {
            path: "/workspace/a".into(),
            kind: FileChangeKind::Deleted,
            diff: None,
        },
        EventPayload::ChildRunChanged {
            run: ChildRun {
                id: ChildRunId("k".into()),
                state: ChildRunState::Stopped,
                title: None,
                call_id: Some("c".into()),
            },
        },
        EventPayload::ContextCompacted,
        EventPayload::Usage { usage: usage() },
        EventPayload::DiagnosticRaw {
            topic: "t".into(),
            message: "m".into(),
        },
    ]
}

#[test]
fn every_event_has_the_wire_field_of_its_name() {
    let pool = prost_reflect::DescriptorPool::decode(astrabox_proto::DESCRIPTOR_SET)
        .expect("it is generated");
    let descriptor = pool
        .get_message_by_name("astrabox.v1.Event")
        .expect("the message exists");
    let mut names: Vec<String> = Vec::new();
    for payload in payloads() {
        let name = payload.name().replace('.', "_");
        let bytes = prost::Message::encode_to_vec(&journal(payload));
        let event = prost_reflect::DynamicMessage::decode(descriptor.clone(), bytes.as_slice())
            .expect("it decodes");
        assert!(event.has_field_by_name(&name), "{name}");
        names.push(name);
    }
    let oneof = descriptor.oneofs().next().expect("the payload");
    let mut fields: Vec<_> = oneof
        .fields()
        .map(|field| field.name().to_owned())
        .collect();
    names.sort();
    fields.sort();
    assert_eq!(names, fields);
}

#[test]
fn a_vendors_json_crosses_verbatim() {
    let event = journal(EventPayload::ToolCall {
        call_id: "c".into(),
        name: "shell".into(),
        input: json(),
    });
    assert_eq!(event.native, r#"{"b":1.0}"#);
    let Some(v1::event::Payload::ToolCall(call)) = event.payload else {
        panic!("a tool call")
    };
    assert_eq!(call.input, json().text());
}

#[test]
fn a_figure_that_is_not_told_stays_apart_from_zero() {
    let Some(v1::event::Payload::Usage(told)) =
        journal(EventPayload::Usage { usage: usage() }).payload
    else {
        panic!("usage")
    };
    let told = told.usage.expect("figures");
    assert_eq!(
        (told.input_tokens, told.cached_input_tokens),
        (Some(0), None)
    );
}

#[test]
fn content_survives_both_ways() {
    let parts = vec![
        ContentPart::text("ümlaut"),
        ContentPart::Image {
            media_type: ImageMediaType::Webp,
            data: "AQIDBA==".into(),
        },
    ];
    let accepted = journal(EventPayload::InputAccepted {
        input_id: InputId::new(),
        content: parts.clone(),
    });
    let Some(v1::event::Payload::InputAccepted(accepted)) = accepted.payload else {
        panic!("an input")
    };
    assert_eq!(
        from_proto::content(accepted.content).expect("it reads back"),
        parts
    );
}

#[test]
fn content_that_says_nothing_or_an_unknown_picture_is_refused_by_place() {
    let image = |media_type: &str| v1::ContentPart {
        part: Some(v1::content_part::Part::Image(v1::Image {
            media_type: media_type.into(),
            ..Default::default()
        })),
    };
    let text = v1::ContentPart {
        part: Some(v1::content_part::Part::Text("x".into())),
    };
    for (parts, field) in [
        (
            vec![text.clone(), v1::ContentPart { part: None }],
            "content[1]",
        ),
        (vec![image("image/bmp")], "content[0].image.media_type"),
        (vec![image("")], "content[0].image.media_type"),
    ] {
        let error = from_proto::content(parts).expect_err("it is refused");
        assert_eq!(
            error.metadata().get("field").map(String::as_str),
            Some(field)
        );
    }
}

#[test]
fn answers_survive_both_ways() {
    for answer in [
        InteractionAnswer::Choose {
            choice_id: "accept".into(),
            comment: None,
            input: None,
        },
        InteractionAnswer::Choose {
            choice_id: "accept".into(),
            comment: Some("but".into()),
            input: None,
        },
        InteractionAnswer::Reply {
            answers: BTreeMap::from([("q".into(), vec!["a".into(), "b".into()])]),
        },
        InteractionAnswer::Decline {
            comment: Some("no".into()),
        },
    ] {
        let wire = interaction::answer_to_proto(answer.clone());
        assert_eq!(
            interaction::answer_from_proto(Some(wire)).expect("it reads back"),
            answer
        );
    }
    assert!(interaction::answer_from_proto(None).is_err());
    assert!(interaction::answer_from_proto(Some(v1::InteractionAnswer::default())).is_err());
}

#[test]
fn every_presentation_reaches_the_wire_whole() {
    let question = Question {
        id: "q".into(),
        header: None,
        question: "which?".into(),
        options: vec!["a".into()],
        multi_select: true,
        allow_free_text: false,
    };
    let wire = interaction::to_proto(Interaction {
        id: InteractionId::new(),
        presentation: Presentation::Question {
            questions: vec![question],
        },
    });
    let Some(v1::interaction::Presentation::Question(form)) = wire.presentation else {
        panic!("a question")
    };
    assert_eq!(
        (
            form.questions[0].header.as_str(),
            form.questions[0].multi_select
        ),
        ("", true)
    );
    let wire = interaction::to_proto(Interaction {
        id: InteractionId::new(),
        presentation: Presentation::ToolApproval {
            call_id: None,
            tool: "shell".into(),
            input: json(),
            reason: Some("r".into()),
            choices: vec![Choice {
                id: "accept".into(),
                label: "Accept".into(),
                allows: true,
            }],
        },
    });
    let Some(v1::interaction::Presentation::ToolApproval(approval)) = wire.presentation else {
        panic!("an approval")
    };
    assert_eq!(
        (approval.input.as_str(), approval.choices.len()),
        (json().text(), 1)
    );
}

#[test]
fn a_delta_names_its_message_and_its_place() {
    let delta = Delta {
        event_id: EventId::new(),
        turn_id: None,
        child_run: Some(ChildRunId("k".into())),
        channel: DeltaChannel::ToolOutput,
        offset: 9,
        text: "x".into(),
    };
    let wire = event::delta_to_proto(delta.clone());
    assert_eq!(wire.event_id, delta.event_id.to_string());
    assert_eq!(
        (
            wire.offset,
            wire.turn_id.as_str(),
            wire.child_run_id.as_str()
        ),
        (9, "", "k")
    );
    assert_eq!(wire.channel(), v1::DeltaChannel::ToolOutput);
}

#[test]
fn times_before_1970_count_forwards() {
    let at: Timestamp = "1969-12-31T23:59:58.25Z".parse().expect("a time");
    let wire = to_proto::timestamp(at).expect("a time");
    assert_eq!((wire.seconds, wire.nanos), (-2, 250_000_000));
}

#[test]
fn session_states_are_the_same_on_both_sides() {
    for state in SessionState::ALL {
        let wire = to_proto::session_state(state);
        assert_eq!(
            wire.as_str_name(),
            format!("SESSION_STATE_{}", state.as_str())
        );
    }
}

#[test]
fn a_missing_or_malformed_field_is_refused_by_name() {
    type Case = (&'static str, fn() -> astrabox_platform::Result<()>);
    let cases: &[Case] = &[
        ("session_id", || {
            from_proto::id::<SessionId>("session_id", "").map(drop)
        }),
        ("session_id", || {
            from_proto::id::<SessionId>("session_id", "sesn_x").map(drop)
        }),
        ("kind", || {
            from_proto::given("kind", String::new()).map(drop)
        }),
        ("page_size", || {
            from_proto::page(-1, String::new()).map(drop)
        }),
        ("spec", || from_proto::agent_draft(None).map(drop)),
        ("spec.environment", || {
            from_proto::agent_draft(Some(v1::AgentSpec::default())).map(drop)
        }),
        ("spec", || from_proto::environment_spec(None).map(drop)),
        ("spec.name", || {
            from_proto::environment_spec(Some(v1::EnvironmentSpec::default())).map(drop)
        }),
        ("spec.networking", || {
            from_proto::environment_spec(Some(v1::EnvironmentSpec {
                name: "n".into(),
                engine: "e".into(),
                networking: Some(v1::Networking { r#type: None }),
                ..Default::default()
            }))
            .map(drop)
        }),
        ("update_mask", || {
            from_proto::agent_update(v1::UpdateAgentRequest::default()).map(drop)
        }),
        ("agent_id", || {
            from_proto::session_draft(v1::CreateSessionRequest::default()).map(drop)
        }),
    ];
    for (field, case) in cases {
        let error = case().expect_err(field);
        assert_eq!(error.reason(), ErrorReason::InvalidField, "{field}");
        assert_eq!(
            error.metadata().get("field").map(String::as_str),
            Some(*field)
        );
    }
}

#[test]
fn an_update_takes_what_its_mask_names() {
    let mask = |paths: &[&str]| {
        Some(prost_types::FieldMask {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        })
    };
    let update = from_proto::environment_update(v1::UpdateEnvironmentRequest {
        spec: Some(v1::EnvironmentSpec {
            description: "new".into(),
            ..Default::default()
        }),
        update_mask: mask(&["description", "image", "networking"]),
        version: 4,
        ..Default::default()
    })
    .expect("it converts");
    assert_eq!(update.version, Some(4));
    assert_eq!(update.description.as_deref(), Some("new"));
    assert_eq!(update.image, Some(None));
    assert!(update.networking.is_some());
    assert_eq!(
        (update.sandbox, update.limits, update.permission_level),
        (None, None, None)
    );
}
