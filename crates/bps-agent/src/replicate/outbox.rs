//! Makes words of what the standby lacks, and remembers what it has then. Reads files; never talks to anybody.
//!
//! A look that is to be had as it is arrives as that or not at all: a batch is abandoned if a file has other content by now.
//! Of any other look the standby gets what can be had.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::directory::StateDirectory;
use super::image::{Change, Entry, Image, StatePath, diff};
use super::scan::{Growth, Snapshot, is_gone, prefix};
use super::word::{PIECE_MAX_BYTES, Word};

/// The words of one batch, in order.
#[derive(Debug)]
pub struct Outbox {
    directory: StateDirectory,
    /// What the standby has, once it has carried out all that was said.
    mirror: Image,
    snapshot: Arc<Snapshot>,
    changes: VecDeque<Change>,
    open: Option<Open>,
    /// What the batch makes of entries; `None`: it removes one.
    made: Vec<(StatePath, Option<Entry>)>,
    flaws: Flaws,
    end: Option<BatchEnd>,
}

/// What came of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchEnd {
    /// The standby has the look once it has acknowledged it.
    Exact,
    /// It has a mixture: something newer in places, or what the look had was never there at one moment.
    Newer,
    /// It lacks something, or has nothing of it at all: only a further look tells where that is now.
    Torn,
}

/// What was found of files when they were sent.
#[derive(Clone, Copy, Debug, Default)]
struct Flaws {
    /// Something was gone that the look has: it may be there under another name.
    is_torn: bool,
    /// What is sent was not there at the moment of the look.
    is_newer: bool,
}

/// A file whose content is on its way.
#[derive(Debug)]
struct Open {
    path: StatePath,
    mode: u16,
    file: File,
    /// How much of it is sent at most.
    left: u64,
    size: u64,
    state: Sha256,
}

impl Outbox {
    /// What makes the snapshot of `mirror`, which is what the standby has.
    pub fn new(directory: StateDirectory, mirror: Image, snapshot: Arc<Snapshot>) -> Self {
        let changes = diff(&mirror, &snapshot.image).into();
        let (open, made, end) = (None, Vec::new(), None);
        let flaws = Flaws { is_torn: false, is_newer: !snapshot.is_whole };
        Self { directory, mirror, snapshot, changes, open, made, flaws, end }
    }

    /// What the standby has once it has carried out what was said, and what came of the batch.
    pub fn into_mirror(self) -> (Image, BatchEnd) {
        (self.mirror, self.end.unwrap_or(BatchEnd::Torn))
    }

    /// The next words, together about as long as this; none when all have been given.
    ///
    /// # Errors
    /// A file cannot be read. One that was removed meanwhile is left to the next batch.
    pub fn next(&mut self, bytes: usize) -> io::Result<Vec<Word>> {
        let (mut words, mut length) = (Vec::new(), 0);
        while length < bytes {
            let Some(word) = self.next_word()? else { break };
            // Roughly: a word is little more than its piece.
            length += if let Word::Piece(piece) = &word { piece.len() } else { 64 };
            words.push(word);
        }
        Ok(words)
    }

    fn next_word(&mut self) -> io::Result<Option<Word>> {
        while self.end.is_none() {
            if let Some(open) = &mut self.open {
                if let Some(piece) = open.read()? {
                    return Ok(Some(Word::Piece(piece)));
                }
                self.close();
            }
            let Flaws { is_torn, is_newer } = self.flaws;
            if self.snapshot.is_exact && (is_torn || is_newer) {
                // The standby goes on with what it has.
                self.end = Some(BatchEnd::Torn);
                return Ok(Some(Word::Abandon));
            }
            let Some(change) = self.changes.pop_front() else { return Ok(Some(self.commit())) };
            if is_torn && matches!(change, Change::Remove(_)) {
                // It may be what is gone under its new name.
                continue;
            }
            match self.begin(change) {
                Err(error) if is_gone(&error) => self.flaws.is_torn = true,
                word => return word.map(Some),
            }
        }
        Ok(None)
    }

    fn commit(&mut self) -> Word {
        for (path, made) in self.made.drain(..) {
            match made {
                Some(entry) => drop(self.mirror.insert(path, entry)),
                None => drop(self.mirror.remove(&path)),
            }
        }
        self.end = Some(match self.flaws {
            Flaws { is_torn: true, .. } => BatchEnd::Torn,
            Flaws { is_newer: true, .. } => BatchEnd::Newer,
            Flaws { is_torn: false, is_newer: false } => BatchEnd::Exact,
        });
        Word::Commit(self.snapshot.sequence)
    }

    fn begin(&mut self, change: Change) -> io::Result<Word> {
        Ok(match change {
            Change::Remove(path) => {
                self.made.push((path.clone(), None));
                Word::Remove(path)
            }
            Change::MakeFolder(path, mode) => {
                self.made.push((path.clone(), Some(Entry::Folder { mode })));
                Word::MakeFolder(path, mode)
            }
            Change::SetMode(path, mode) => {
                let changed = self.mirror.get(&path).map(|had| match had {
                    Entry::Folder { .. } => Entry::Folder { mode },
                    Entry::File { size, hash, .. } => Entry::File { mode, size: *size, hash: *hash },
                });
                self.made.push((path.clone(), changed));
                Word::SetMode(path, mode)
            }
            Change::Write(path) => self.open(path)?,
        })
    }

    fn open(&mut self, path: StatePath) -> io::Result<Word> {
        let Some(Entry::File { mode, size: scanned, .. }) = self.snapshot.image.get(&path).cloned() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let kept = self.snapshot.kept.take(&path);
        let mut file = kept.map_or_else(|| self.directory.open_file(&path), Ok)?;
        file.rewind()?;
        let metadata = file.metadata()?;
        let source = self.snapshot.sources.get(&path);
        // Another file may have taken the place of one that is not open any more; that one is sent as it is.
        let source = source.filter(|source| source.inode == metadata.ino() && scanned <= metadata.size());
        let growth = source.and_then(|source| source.growth.clone());
        let had = self.mirror.get(&path).cloned();
        let is_grown =
            |growth: &Growth| had == Some(Entry::File { mode, size: growth.size, hash: growth.hash });
        let growth = match (growth.filter(is_grown), &had) {
            (Some(growth), _) => Some(growth),
            (None, Some(Entry::File { mode: had, size, hash })) if *had == mode && *size < scanned => {
                prefix(&mut file, *size)?.filter(|prefix| source.is_some() && prefix.hash == *hash)
            }
            (None, _) => None,
        };
        file.rewind()?;
        if let Some(Growth { size, state, .. }) = growth {
            file.seek(SeekFrom::Start(size))?;
            self.open = Some(Open { path: path.clone(), mode, file, left: scanned - size, size, state });
            return Ok(Word::Append(path, size));
        }
        let left = if source.is_some() { scanned } else { u64::MAX };
        self.open = Some(Open { path: path.clone(), mode, file, left, size: 0, state: Sha256::new() });
        Ok(Word::Write(path, mode))
    }

    /// What was sent is what the standby gets, whatever became of the file meanwhile.
    fn close(&mut self) {
        if let Some(Open { path, mode, size, state, .. }) = self.open.take() {
            let sent = Entry::File { mode, size, hash: state.finalize().into() };
            self.flaws.is_newer |= self.snapshot.image.get(&path) != Some(&sent);
            self.made.push((path, Some(sent)));
        }
    }
}

impl Open {
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(PIECE_MAX_BYTES);
        let mut piece = vec![0; most];
        let read = self.file.read(&mut piece)?;
        if read == 0 {
            return Ok(None);
        }
        piece.truncate(read);
        self.state.update(&piece);
        (self.left, self.size) = (self.left - read as u64, self.size + read as u64);
        Ok(Some(piece))
    }
}
