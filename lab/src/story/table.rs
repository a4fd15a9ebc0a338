//! Tables as the API server prints them for `kubectl get`.

use std::fmt;

use bps_api::keys;
use http::Request;
use kube::Client;
use serde::Deserialize;
use serde_json::Value;

/// What makes the API server answer with a table.
const ACCEPT_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// Space between two columns, as kubectl has it.
const GAP: &str = "   ";

/// A table of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A cell; `None` without such a row or column.
    pub fn cell(&self, row: usize, column: &str) -> Option<&String> {
        let index = self.header.iter().position(|name| name == column)?;
        self.rows.get(row)?.get(index)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = || std::iter::once(&self.header).chain(&self.rows);
        let width = |column: usize| lines().filter_map(|line| line.get(column)).map(String::len).max();
        let widths: Vec<_> = (0..self.header.len()).map(|column| width(column).unwrap_or(0)).collect();
        for line in lines() {
            let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            writeln!(formatter, "{}", cells.collect::<Vec<_>>().join(GAP).trim_end())?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    column_definitions: Vec<Column>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Column {
    name: String,
    priority: i32,
}

#[derive(Deserialize)]
struct Row {
    cells: Vec<Value>,
    object: Value,
}

/// The Pods of a set, as `kubectl get pods -L type` prints them.
///
/// # Errors
/// The API server's.
pub async fn pods(client: &Client, namespace: &str, set: &str) -> Result<Table, kube::Error> {
    labelled_pods(client, namespace, ((keys::LABEL_SET, set), &[keys::LABEL_TYPE])).await
}

/// The Pods of a group, as `kubectl get pods -L HAState,peer` prints them.
///
/// # Errors
/// The API server's.
pub async fn pair_pods(client: &Client, namespace: &str, group: &str) -> Result<Table, kube::Error> {
    let columns = [keys::LABEL_HA_STATE, keys::LABEL_PEER];
    labelled_pods(client, namespace, ((keys::LABEL_GROUP, group), &columns)).await
}

async fn labelled_pods(
    client: &Client,
    namespace: &str,
    ((label, value), columns): ((&str, &str), &[&str]),
) -> Result<Table, kube::Error> {
    let selector = format!("{}%3D{value}", label.replace('/', "%2F"));
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}");
    Ok(table(ask(client, &path).await?, columns))
}

/// One group, as `kubectl get hag` prints it.
///
/// # Errors
/// The API server's.
pub async fn groups(client: &Client, namespace: &str, group: &str) -> Result<Table, kube::Error> {
    one_of_ours(client, namespace, (keys::GROUP_PLURAL, group)).await
}

/// One set, as `kubectl get bps` prints it.
///
/// # Errors
/// The API server's.
pub async fn sets(client: &Client, namespace: &str, set: &str) -> Result<Table, kube::Error> {
    one_of_ours(client, namespace, (keys::PLURAL, set)).await
}

async fn one_of_ours(
    client: &Client,
    namespace: &str,
    (plural, name): (&str, &str),
) -> Result<Table, kube::Error> {
    let path = format!("/apis/{}/{}/namespaces/{namespace}/{plural}/{name}", keys::GROUP, keys::VERSION);
    Ok(table(ask(client, &path).await?, &[]))
}

async fn ask(client: &Client, path: &str) -> Result<Answer, kube::Error> {
    let request = Request::get(path).header(http::header::ACCEPT, ACCEPT_TABLE).body(Vec::new());
    client.request(request.expect("a path without odd characters")).await
}

/// The columns that kubectl shows by default, and one for each of these labels.
fn table(answer: Answer, labels: &[&str]) -> Table {
    let shown: Vec<_> = answer.column_definitions.iter().map(|column| column.priority == 0).collect();
    let header = answer.column_definitions.into_iter().filter(|column| column.priority == 0);
    let mut header: Vec<_> = header.map(|column| column.name.to_uppercase()).collect();
    header.extend(labels.iter().map(|label| label.to_uppercase()));
    let row = |row: Row| {
        let cells = row.cells.iter().zip(&shown).filter(|(_, is_shown)| **is_shown);
        let mut cells: Vec<_> = cells.map(|(cell, _)| text(cell)).collect();
        cells.extend(labels.iter().map(|label| text(&row.object["metadata"]["labels"][label])));
        cells
    };
    Table { header, rows: answer.rows.into_iter().map(row).collect() }
}

fn text(cell: &Value) -> String {
    match cell {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_has_the_default_columns_and_the_label() {
        let answer = json!({
            "columnDefinitions": [
                {"name": "Name", "priority": 0}, {"name": "Restarts", "priority": 0}, {"name": "IP", "priority": 1},
            ],
            "rows": [
                {"cells": ["web-1", 0, "198.18.4.2"], "object": {"metadata": {"labels": {"type": "primary"}}}},
                {"cells": ["web-12", 3, null], "object": {"metadata": {}}},
            ],
        });
        let table = table(serde_json::from_value(answer).unwrap(), &["type"]);
        assert_eq!(table.to_string(), "NAME     RESTARTS   TYPE\nweb-1    0          primary\nweb-12   3\n");
        assert_eq!(table.cell(1, "RESTARTS"), Some(&"3".to_owned()));
        assert_eq!(table.cell(0, "AGE"), None);
    }
}
