//! Pages and their tokens.

use astrabox_store::{Error, PageToken, SessionFilter};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::support::{Place, environment, made_agent, new_session, says, step};

#[tokio::test]
async fn pages_of_any_size_give_every_item_once_in_order() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let events = (0..9).map(|n| says(&n.to_string())).collect();
    place
        .store
        .commit(id, step(epoch, events))
        .await
        .expect("committed");
    for n in 0..7 {
        let made = place
            .store
            .insert_environment(None, environment(&format!("x{n}")))
            .await;
        made.expect("inserted");
    }
    for size in 1..=12 {
        let (mut seqs, mut token) = (Vec::new(), None::<String>);
        loop {
            let page = place.store.event_page(id, 3, size, token.as_deref()).await;
            let page = page.expect("a page");
            seqs.extend(page.items.iter().map(|event| event.seq));
            token = page.next;
            if token.is_none() {
                break;
            }
        }
        assert_eq!(seqs, (4..=10).collect::<Vec<_>>(), "pages of {size}");
        let (mut names, mut token) = (Vec::new(), None::<String>);
        loop {
            let page = place
                .store
                .environments(size, token.as_deref())
                .await
                .expect("a page");
            names.extend(page.items.into_iter().map(|one| one.spec.name));
            token = page.next;
            if token.is_none() {
                break;
            }
        }
        names.retain(|name| name.starts_with('x'));
        assert_eq!(names, (0..7).map(|n| format!("x{n}")).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn sessions_are_paged_last_changed_first() {
    let place = Place::new().await;
    let mut expected = Vec::new();
    for _ in 0..5 {
        expected.insert(0, place.session().await);
    }
    // A change brings one to the front.
    let changed = expected.remove(3);
    let epoch = place.store.claim(changed).await.expect("claimed");
    place
        .store
        .commit(changed, step(epoch, vec![says("x")]))
        .await
        .expect("committed");
    expected.insert(0, changed);
    let (mut ids, mut token) = (Vec::new(), None::<String>);
    loop {
        let page = place
            .store
            .sessions(&SessionFilter::default(), 2, token.as_deref())
            .await;
        let page = page.expect("a page");
        ids.extend(page.items.into_iter().map(|row| row.session.id));
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    assert_eq!(ids, expected);
    let of_nobody = SessionFilter {
        agent_id: Some(astrabox_types::AgentId::new()),
        include_archived: true,
    };
    let page = place
        .store
        .sessions(&of_nobody, 10, None)
        .await
        .expect("a page");
    assert!(page.items.is_empty());
}

#[tokio::test]
async fn a_token_of_another_list_or_a_changed_one_is_refused() {
    let place = Place::new().await;
    let (one, epoch) = place.owned().await;
    let (two, _) = place.owned().await;
    let events = vec![says("a"), says("b")];
    place
        .store
        .commit(one, step(epoch, events))
        .await
        .expect("committed");
    let page = place
        .store
        .event_page(one, 0, 1, None)
        .await
        .expect("a page");
    let token = page.next.expect("there is more");
    let wrong = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let list = format!("events/{one}");
    let refused = [
        String::new(),
        "?".to_owned(),
        format!("{token}x"),
        token[1..].to_owned(),
        wrong("{}"),
        wrong("[]"),
        wrong(&format!(r#"{{"list":"{list}","after":[]}}"#)),
        wrong(&format!(r#"{{"list":"{list}","after":["1","2"]}}"#)),
        wrong(&format!(r#"{{"list":"{list}","after":["x"]}}"#)),
        wrong(&format!(r#"{{"list":"{list}","after":["-1"]}}"#)),
        wrong(&format!(r#"{{"list":"{list}","after":["1"],"more":1}}"#)),
        PageToken::new("environments", vec!["x".into()]).encode(),
    ];
    for text in refused {
        let page = place.store.event_page(one, 0, 1, Some(&text)).await;
        assert!(matches!(page, Err(Error::ForeignToken)), "{text}: {page:?}");
    }
    let foreign = place.store.event_page(two, 0, 1, Some(&token)).await;
    assert!(matches!(foreign, Err(Error::ForeignToken)));
    let agent = made_agent(&place.store).await;
    for page in [
        place.store.agents(1, Some(&token), false).await.map(drop),
        place.store.environments(1, Some(&token)).await.map(drop),
        place
            .store
            .agent_versions(agent.id, 1, Some(&token))
            .await
            .map(drop),
        place
            .store
            .sessions(&SessionFilter::default(), 1, Some(&token))
            .await
            .map(drop),
    ] {
        assert!(matches!(page, Err(Error::ForeignToken)));
    }
    place
        .store
        .event_page(one, 0, 1, Some(&token))
        .await
        .expect("its own list");
}

#[tokio::test]
async fn a_filter_is_part_of_the_list() {
    let place = Place::new().await;
    for _ in 0..2 {
        let new = new_session(&place.store, None).await;
        place
            .store
            .insert_session(None, new)
            .await
            .expect("inserted");
    }
    let all = SessionFilter {
        agent_id: None,
        include_archived: true,
    };
    let token = place
        .store
        .sessions(&all, 1, None)
        .await
        .expect("a page")
        .next;
    let some = SessionFilter::default();
    let foreign = place.store.sessions(&some, 1, token.as_deref()).await;
    assert!(matches!(foreign, Err(Error::ForeignToken)));
}

#[tokio::test]
async fn a_page_of_long_events_is_cut_by_its_size_and_never_empty() {
    let place = Place::new().await;
    let (id, epoch) = place.owned().await;
    let long = "x".repeat(3 << 20);
    for text in ["short", &long, &long, "short", "short"] {
        place
            .store
            .commit(id, step(epoch, vec![says(text)]))
            .await
            .expect("committed");
    }
    let (mut token, mut pages) = (None, Vec::new());
    loop {
        let page = place.store.event_page(id, 0, 1000, token.as_deref()).await;
        let page = page.expect("a page");
        pages.push(page.items.iter().map(|event| event.seq).collect::<Vec<_>>());
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    assert_eq!(
        pages,
        [vec![1, 2, 3], vec![4, 5, 6]],
        "the first is the session's own"
    );
}
