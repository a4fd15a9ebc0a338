//! Who is blamed for what the operators complained of while several claims were held: pure, so that `tests/checkers.rs` can
//! show that no complaint is dropped.

use std::collections::BTreeSet;

/// A line of an operator's log that must not be in it.
#[derive(Debug)]
struct Complaint {
    line: String,
    /// The namespace that it is about, if a claim was held there when it was found.
    namespace: Option<String>,
    /// Whether a claim was blamed for it.
    is_blamed: bool,
}

/// Every complaint so far, in the order in which they were found.
#[derive(Debug, Default)]
pub struct Ledger {
    complaints: Vec<Complaint>,
    /// Namespaces of the claims that are held.
    held: BTreeSet<String>,
}

/// Up to where a claim has been told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(usize);

impl Ledger {
    /// A claim begins in this namespace: what is entered from now on is for it.
    pub fn begin(&mut self, namespace: &str) -> Mark {
        self.held.insert(namespace.to_owned());
        self.mark()
    }

    /// The claim of this namespace has ended, and been told of everything.
    pub fn end(&mut self, namespace: &str) {
        self.held.remove(namespace);
    }

    /// Takes complaints in.
    pub fn enter(&mut self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            let namespace = namespace_of(&line).filter(|of| self.held.contains(*of)).map(str::to_owned);
            self.complaints.push(Complaint { line, namespace, is_blamed: false });
        }
    }

    /// What the claim in this namespace is to blame for since its mark, which moves on. A line that names no namespace, or
    /// one in which no claim is held, is blamed on every claim that is.
    pub fn blamed_on(&mut self, namespace: &str, mark: &mut Mark) -> Vec<String> {
        let since = mark.0;
        *mark = self.mark();

        let is_own =
            |complaint: &&mut Complaint| complaint.namespace.as_deref().is_none_or(|of| of == namespace);
        let own = self.complaints[since..].iter_mut().filter(is_own);
        own.map(|complaint| {
            complaint.is_blamed = true;
            complaint.line.clone()
        })
        .collect()
    }

    /// What no claim was blamed for, because none was held.
    pub fn unblamed(&self) -> impl Iterator<Item = &str> {
        let unblamed = self.complaints.iter().filter(|complaint| !complaint.is_blamed);
        unblamed.map(|complaint| complaint.line.as_str())
    }

    fn mark(&self) -> Mark {
        Mark(self.complaints.len())
    }
}

/// The namespace that a line of a log is about; `None` if it does not say.
pub fn namespace_of(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(" namespace=\"")?;
    rest.split_once('"').map(|(namespace, _)| namespace)
}
