//! Manifests that keep the order of their keys, so that people recognise what they wrote.
//!
//! Comments, anchors and quotes are not kept.

use std::fmt;

use serde::de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value};

use super::Error;
use super::arguments::Format;

/// A JSON value whose objects keep the order of their keys.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Document {
    /// Null, boolean, number or text.
    Scalar(Value),
    /// A list.
    List(Vec<Document>),
    /// An object.
    Object(Vec<(String, Document)>),
}

/// Reads all documents of a text; empty ones are left out. JSON is read as the YAML it is.
///
/// Numbers and booleans are understood as kubectl does, which reads YAML 1.1: 0644 is octal, and `on` is true.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, Error> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| Error::Parse(Box::new(error)))
}

/// One text of all documents. JSON has one value, so several become a List.
pub(super) fn write(documents: &[Document], format: Format) -> Result<String, Error> {
    match (format, documents) {
        (Format::Yaml, _) => {
            let texts: Result<Vec<String>, Error> = documents.iter().map(yaml).collect();
            Ok(texts?.join("---\n"))
        }
        (Format::Json, [one]) => json(one),
        (Format::Json, several) => {
            let text = |text: &str| Document::Scalar(Value::from(text));
            let list =
                [("apiVersion", text("v1")), ("kind", text("List")), ("items", several.to_vec().into())];
            let list = list.map(|(key, value)| (key.to_owned(), value));
            json(&Document::Object(list.into()))
        }
    }
}

/// A value in the form that was asked for; without one, as text for people.
pub(super) fn formed(
    format: Option<Format>,
    value: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<String, Error> {
    match format {
        Some(Format::Json) => json(value),
        Some(Format::Yaml) => yaml(value),
        None => Ok(text()),
    }
}

/// A value as YAML; texts of several lines as blocks, everything else in one line.
pub(super) fn yaml(value: &impl Serialize) -> Result<String, Error> {
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(value, options).map_err(|error| Error::Write(Box::new(error)))
}

/// A value as JSON.
pub(super) fn json(value: &impl Serialize) -> Result<String, Error> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::Write(Box::new(error)))?;
    Ok(text + "\n")
}

impl Document {
    /// A field of an object.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Object(fields) = self else { return None };
        fields.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// A field of an object, to be changed.
    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        let Self::Object(fields) = self else { return None };
        fields.iter_mut().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// The text that it is.
    pub(super) fn as_str(&self) -> Option<&str> {
        let Self::Scalar(value) = self else { return None };
        value.as_str()
    }

    /// The same without an order.
    pub(super) fn value(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::List(items) => items.iter().map(Self::value).collect(),
            Self::Object(fields) => Value::Object(
                fields.iter().map(|(key, value)| (key.clone(), value.value())).collect::<Map<_, _>>(),
            ),
        }
    }

    /// A value with its keys in the order of an earlier form; keys that are new come last.
    pub(super) fn ordered(value: Value, like: Option<&Self>) -> Self {
        match value {
            Value::Array(items) => {
                let item = |(index, item): (usize, Value)| {
                    let like = like.and_then(|like| like.item(&item, index));
                    Self::ordered(item, like)
                };
                Self::List(items.into_iter().enumerate().map(item).collect())
            }
            Value::Object(mut fields) => {
                let known: Vec<&String> = match like {
                    Some(Self::Object(known)) => known.iter().map(|(key, _)| key).collect(),
                    Some(Self::Scalar(_) | Self::List(_)) | None => Vec::new(),
                };
                let known: Vec<(String, Value)> =
                    known.into_iter().filter_map(|key| Some((key.clone(), fields.remove(key)?))).collect();
                let ordered = |(key, value): (String, Value)| {
                    let value = Self::ordered(value, like.and_then(|like| like.get(&key)));
                    (key, value)
                };
                Self::Object(known.into_iter().chain(fields).map(ordered).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Self::Scalar(value),
        }
    }

    /// The item that had the same name, else the one in the same place.
    fn item(&self, item: &Value, index: usize) -> Option<&Self> {
        let Self::List(items) = self else { return None };
        let Some(name) = item.get("name").and_then(Value::as_str) else { return items.get(index) };
        items.iter().find(|item| item.get("name").and_then(Self::as_str) == Some(name))
    }
}

impl From<Vec<Self>> for Document {
    fn from(items: Vec<Self>) -> Self {
        Self::List(items)
    }
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Scalar(value) => value.serialize(serializer),
            Self::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(item)?;
                }
                list.end()
            }
            Self::Object(fields) => {
                let mut object = serializer.serialize_map(Some(fields.len()))?;
                for (key, value) in fields {
                    object.serialize_entry(key, value)?;
                }
                object.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DocumentVisitor)
    }
}

struct DocumentVisitor;

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = Document;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value that JSON has")
    }

    fn visit_unit<E>(self) -> Result<Document, E> {
        Ok(Document::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Document, E> {
        Ok(Document::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Document, D::Error> {
        Document::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Document, E> {
        Ok(Document::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Document, E> {
        Ok(Document::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Document, E> {
        Ok(Document::Scalar(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Document, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("JSON has no such number"))?;
        Ok(Document::Scalar(Value::Number(number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Document, E> {
        Ok(Document::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Document, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Document::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Document, A::Error> {
        let mut fields: Vec<(String, Document)> = Vec::new();
        while let Some((key, value)) = access.next_entry::<String, _>()? {
            if fields.iter().any(|(known, _)| *known == key) {
                return Err(A::Error::custom(format!("the key {key:?} stands there twice")));
            }
            fields.push((key, value));
        }
        Ok(Document::Object(fields))
    }
}
