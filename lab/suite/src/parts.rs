//! Says which parts the suite has, and how each is run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::cargo::{TestProgram, Workspace};
use crate::needs::{self, Needs};
use crate::part::{Part, Work};

/// What parts are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    /// Cargo.
    pub(crate) cargo: PathBuf,
    /// The packages.
    pub(crate) workspace: Workspace,
    /// Where logs are.
    pub(crate) folder: PathBuf,
}

impl Site {
    /// A target of the Makefile that checks the sources.
    pub(crate) fn lint(&self, target: &str) -> Part {
        let needs = Needs { within: needs::LINT_WITHIN, ..Needs::DEFAULT };
        let work = self.work(Path::new("make"), &["--no-print-directory", target]);
        Part { name: target.to_owned(), needs, work }
    }

    /// The compilation of all tests; what Cargo says of it is in [`Self::messages`].
    pub(crate) fn compilation(&self) -> Part {
        let needs = Needs { within: needs::COMPILE_WITHIN, ..Needs::DEFAULT };
        let arguments = ["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
        let work = Work { output: Some(self.messages()), ..self.work(&self.cargo, &arguments) };
        Part { name: "compile".to_owned(), needs, work }
    }

    /// Where Cargo's messages are.
    pub(crate) fn messages(&self) -> PathBuf {
        self.folder.join("compile.json")
    }

    /// What control planes and nodes are made of, so that no test waits until that is built.
    pub(crate) fn programs(&self, lab: &Path) -> Part {
        let needs = Needs { within: needs::PROGRAMS_WITHIN, ..Needs::DEFAULT };
        Part { name: "programs".to_owned(), needs, work: self.work(lab, &["programs"]) }
    }

    /// The tests in the documentation of these packages; `None` if there are no packages.
    pub(crate) fn doc_tests(&self, packages: &[String]) -> Option<Part> {
        let mut arguments = vec!["test", "--doc"];
        arguments.extend(packages.iter().flat_map(|package| ["--package", package]));
        let work = self.work(&self.cargo, &arguments);
        let needs = Needs { within: needs::LINT_WITHIN, ..Needs::DEFAULT };
        (!packages.is_empty()).then(|| Part { name: "doc tests".to_owned(), needs, work })
    }

    /// A test that was compiled.
    pub(crate) fn test(program: TestProgram) -> Part {
        let needs = needs::of(&program.name);
        let unit = if program.is_unit { " (unit)" } else { "" };
        let name = format!("{}/{}{unit}", program.name.package, program.name.target);
        let work = Work {
            program: program.file,
            arguments: needs.arguments.iter().map(|&argument| argument.to_owned()).collect(),
            directory: program.directory,
            environment: program.environment,
            output: None,
        };
        Part { name, needs, work }
    }

    fn work(&self, program: &Path, arguments: &[&str]) -> Work {
        Work {
            program: program.to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            directory: self.workspace.root.clone(),
            environment: BTreeMap::new(),
            output: None,
        }
    }
}
