//! Reads an OpenAPI v3 document of the core group on standard input and prints the Pod template schema.
//!
//! `kubectl get --raw /openapi/v3/api/v1 | cargo run --package bps-api --bin bps-generate > crates/bps-api/src/pod_spec.schema.json`

use std::process::ExitCode;

use bps_api::openapi;

fn main() -> ExitCode {
    let document = match serde_json::from_reader(std::io::stdin().lock()) {
        Ok(document) => document,
        Err(error) => return refuse(&error),
    };
    match openapi::pod_spec_schema(&document) {
        Ok(schema) => println!("{schema}"),
        Err(error) => return refuse(&error),
    }
    ExitCode::SUCCESS
}

fn refuse(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("bps-generate: {error}");
    ExitCode::FAILURE
}
