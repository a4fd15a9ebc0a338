//! Holds the simulated server to the conversations that the real one is held to in `lab/tests/api`.

use std::path::Path;

use crate::simulation::conversations::{File, all, assert_none, differences};
use crate::simulation::semantics_writes::server;

#[tokio::test(start_paused = true)]
async fn the_simulated_server_answers_every_conversation_as_the_real_one() {
    let mut found = Vec::new();
    for file in all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conversations")) {
        let (_, client) = server();
        found.push(differences(&file, &client, "default").await);
    }
    assert_none(&found);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_answer_is_shown_with_its_exchange_and_what_was_expected() {
    let text =
        "{title: t, why: w, exchanges: [{ask: get Pod a, says: '200', facts: {kind: Pod, code: 404}}]}";
    let (_, client) = server();
    let found = differences(&File::read("f", text), &client, "default").await;
    let (shown, answer) = found.split_once("    | ").expect("the answer follows");
    let expected = "f: t\n  why: w\n  exchange 1: get Pod a\n    - expected  says: 200\n    + answered  says: 404 \
        NotFound\n    - expected  kind: \"Pod\"\n    + answered  kind: \"Status\"\n";
    assert_eq!(shown, expected);
    assert!(answer.contains("pods \\\"a\\\" not found"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn words_that_are_not_understood_and_names_that_nothing_has_are_no_conversation() {
    let (_, client) = server();
    for (exchange, complaint) in [
        ("{ask: fetch Pod a, says: '200'}", "`fetch` is no verb"),
        ("{ask: get Pot a, says: '200'}", "`Pot` is not in the table of kinds"),
        ("{ask: get a, says: '200'}", "`get a` is not understood"),
        (
            "{ask: create Pod a, body: {metadata: {uid: $other.uid}}, says: '201'}",
            "`$other.uid` names nothing",
        ),
    ] {
        let file = File::read("f", &format!("{{title: t, why: w, exchanges: [{exchange}]}}"));
        let found = differences(&file, &client, "default").await;
        assert!(found.contains(complaint), "{exchange}: {found}");
    }
}
