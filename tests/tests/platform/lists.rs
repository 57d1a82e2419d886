//! Lists, pages and cursors.

use std::collections::BTreeSet;

use astrabox_platform::{PageRequest, SessionFilter};
use astrabox_types::ErrorReason;

use crate::server::{caller, environment, key, reason};
use crate::stage::Stage;
use crate::told::rests;

fn page(size: u32, token: Option<String>) -> PageRequest {
    PageRequest { size, token }
}

#[tokio::test]
async fn the_journal_is_read_in_pages_of_any_size() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: 1\nSAY: 2\nSAY: 3").await;
    stage.until(id, "the end", rests(1)).await;
    let journal = stage.journal(id).await;
    for size in [1, 2, 3, 7, 1000] {
        let (mut events, mut token) = (Vec::new(), None);
        loop {
            let request = page(size, token);
            let listed = stage.call(move |platform| {
                let request = request.clone();
                async move { platform.list_events(&caller(), id, 2, request).await }
            });
            let listed = listed.await.expect("a page");
            assert!(listed.items.len() <= size as usize);
            events.extend(listed.items);
            token = listed.next;
            if token.is_none() {
                break;
            }
        }
        assert_eq!(events, journal[2..], "pages of {size}");
    }
}

#[tokio::test]
async fn a_cursor_of_another_list_or_session_is_refused() {
    let mut stage = Stage::new().await;
    let (one, two) = (stage.create("SAY: 1").await, stage.create("SAY: 2").await);
    stage.until(one, "the end", rests(1)).await;
    stage.until(two, "the end", rests(1)).await;
    let listed = stage.call(move |platform| async move {
        platform.list_events(&caller(), one, 0, page(1, None)).await
    });
    let token = listed.await.expect("a page").next.expect("there is more");
    let cut = token[..token.len() - 2].to_owned();
    let cases = [
        (two, token.clone()),
        (one, cut),
        (one, "x".to_owned()),
        (one, String::new()),
    ];
    for (id, token) in cases {
        let refused = stage.call(move |platform| {
            let request = page(1, Some(token.clone()));
            async move { platform.list_events(&caller(), id, 0, request).await }
        });
        assert_eq!(reason(refused.await), ErrorReason::ForeignCursor);
    }
    let refused = stage.call(move |platform| {
        let request = page(1, Some(token.clone()));
        async move {
            platform
                .list_sessions(&caller(), SessionFilter::default(), request)
                .await
        }
    });
    assert_eq!(reason(refused.await), ErrorReason::ForeignCursor);
    let refused = stage.call(move |platform| async move {
        platform
            .list_events(&caller(), one, 0, page(1001, None))
            .await
    });
    assert_eq!(reason(refused.await), ErrorReason::InvalidField);
}

#[tokio::test]
async fn sessions_are_listed_once_each() {
    let mut stage = Stage::new().await;
    let mut made = BTreeSet::new();
    for _ in 0..5 {
        let id = stage.create("SAY: x").await;
        stage.until(id, "the end", rests(1)).await;
        made.insert(id);
    }
    let archived = *made.first().expect("there are some");
    stage.archive(archived).await.expect("it is archived");
    for include_archived in [false, true] {
        let (mut seen, mut token) = (Vec::new(), None);
        loop {
            let request = page(2, token);
            let filter = SessionFilter {
                agent_id: None,
                include_archived,
            };
            let listed = stage.call(move |platform| {
                let (filter, request) = (filter.clone(), request.clone());
                async move { platform.list_sessions(&caller(), filter, request).await }
            });
            let listed = listed.await.expect("a page");
            seen.extend(listed.items.into_iter().map(|view| view.session.id));
            token = listed.next;
            if token.is_none() {
                break;
            }
        }
        assert_eq!(seen.len(), if include_archived { 5 } else { 4 });
        assert_eq!(seen.contains(&archived), include_archived);
        let unique: BTreeSet<_> = seen.iter().copied().collect();
        assert_eq!(unique.len(), seen.len());
    }
}

#[tokio::test]
async fn environments_are_listed_by_name() {
    let mut stage = Stage::new().await;
    for name in ["c", "a", "b"] {
        let made = stage.call(move |platform| async move {
            let key = key(format!("environment-{name}"), name);
            platform
                .create_environment(&caller(), key, environment(name))
                .await
        });
        made.await.expect("it is made");
    }
    let first = stage
        .call(|platform| async move { platform.list_environments(&caller(), page(2, None)).await });
    let first = first.await.expect("a page");
    let token = first.next.clone();
    let second = stage.call(move |platform| {
        let request = page(2, token.clone());
        async move { platform.list_environments(&caller(), request).await }
    });
    let second = second.await.expect("a page");
    let names: Vec<_> = first
        .items
        .iter()
        .chain(&second.items)
        .map(|environment| environment.spec.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(second.next, None);
}
