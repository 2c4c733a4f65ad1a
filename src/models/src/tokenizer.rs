//! Instruction text and state bins to token ids.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use crate::discretize::BINS;
use crate::Error;

/// Turns an instruction, and the state where the policy reads it as text, into token ids.
///
/// One tokenizer serves several live sets, possibly from several threads.
pub trait Tokenizer: Send + Sync {
    /// Appends nothing on failure; on success replaces the content of `out` with the valid ids (no padding).
    ///
    /// `state_bins` are bins of [`crate::discretize`], each in -1..=255. Allocates nothing on success when
    /// `out` has room for [`Tokenizer::max_tokens`] ids.
    ///
    /// # Errors
    /// [`Error::PromptEmpty`], [`Error::UnknownWord`], [`Error::StateBin`], and [`Error::PromptTooLong`]
    /// with the full count of tokens: a prompt is never cut.
    fn encode(
        &self,
        text: &str,
        state_bins: Option<&[i32]>,
        out: &mut Vec<i32>,
    ) -> Result<(), Error>;

    /// Most ids that [`Tokenizer::encode`] gives.
    fn max_tokens(&self) -> usize;

    /// Smallest vocabulary, in ids, that an embedding table must have for this tokenizer.
    fn vocabulary(&self) -> usize;

    /// Id that fills the rest of a fixed-length prompt; masked in attention.
    fn pad_id(&self) -> i32;

    /// Lower-case hex SHA-256 of everything that [`Tokenizer::encode`] depends on.
    fn digest(&self) -> String;
}

/// White space at both ends removed, and `_`, line ends and runs of white space made one space.
///
/// Iterates over the words of the cleaned text.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c == '_' || c.is_ascii_whitespace())
        .filter(|w| !w.is_empty())
}

/// A closed list of whole words, and one token for each state bin.
///
/// Layout of a prompt: `<bos>`, the words, `state`, one token for each state element, `action`; without
/// state: `<bos>`, the words, `action`. Bins are clamped to 0..=255 here.
#[derive(Debug, Clone)]
pub struct WordList {
    ids: HashMap<String, i32>,
    bos: i32,
    pad: i32,
    state: i32,
    action: i32,
    state_offset: i32,
    max_tokens: usize,
    digest: String,
}

impl WordList {
    /// Word `i` of `words` has id `i`; bin `b` has id `state_offset + b`.
    ///
    /// # Errors
    /// [`Error::Value`] when `<pad>`, `<bos>`, `state` or `action` is missing, a word is listed twice or
    /// could never be typed, or the words run into the state tokens.
    pub fn new(words: &[String], state_offset: usize, max_tokens: usize) -> Result<Self, Error> {
        let mut ids = HashMap::with_capacity(words.len());
        for (id, word) in words.iter().enumerate() {
            if word.is_empty() || word.contains(|c: char| c == '_' || c.is_ascii_whitespace()) {
                return Err(bad_words(
                    word,
                    "expected a word without white space or `_`",
                ));
            }
            if ids.insert(word.clone(), id as i32).is_some() {
                return Err(bad_words(word, "expected each word once"));
            }
        }
        let need = |word: &str| {
            ids.get(word)
                .copied()
                .ok_or_else(|| bad_words(word, "is missing from the word list"))
        };
        let (pad, bos, state, action) = (
            need("<pad>")?,
            need("<bos>")?,
            need("state")?,
            need("action")?,
        );
        if state_offset < words.len() || state_offset > (i32::MAX as usize) - BINS {
            return Err(Error::Value {
                key: "state_offset",
                got: state_offset.to_string(),
                rule: format!("expected at least the number of words, {}", words.len()),
            });
        }
        if max_tokens == 0 {
            return Err(Error::Value {
                key: "max_prompt_tokens",
                got: "0".into(),
                rule: "expected at least 1".into(),
            });
        }
        let mut hash = Sha256::new();
        hash.update(format!(
            "wordlist-v1\nstate_offset={state_offset}\nmax_tokens={max_tokens}\n"
        ));
        for word in words {
            hash.update(word.as_bytes());
            hash.update(b"\n");
        }
        Ok(WordList {
            ids,
            bos,
            pad,
            state,
            action,
            state_offset: state_offset as i32,
            max_tokens,
            digest: crate::weights::hex(&hash.finalize()),
        })
    }
}

fn bad_words(word: &str, rule: &str) -> Error {
    Error::Value {
        key: "words",
        got: format!("{:?}", word.chars().take(64).collect::<String>()),
        rule: rule.into(),
    }
}

impl Tokenizer for WordList {
    fn encode(
        &self,
        text: &str,
        state_bins: Option<&[i32]>,
        out: &mut Vec<i32>,
    ) -> Result<(), Error> {
        let mut count = 0;
        for (position, word) in words(text).enumerate() {
            // The special tokens are not words that a user can say.
            if word.starts_with('<') || !self.ids.contains_key(word) {
                return Err(Error::UnknownWord {
                    word: word.chars().take(64).collect(),
                    position,
                });
            }
            count = position + 1;
        }
        if count == 0 {
            return Err(Error::PromptEmpty);
        }
        let bins = state_bins.unwrap_or(&[]);
        if let Some((index, &got)) = bins
            .iter()
            .enumerate()
            .find(|(_, b)| !(-1..BINS as i32).contains(*b))
        {
            return Err(Error::StateBin { index, got });
        }
        let tokens = count + 2 + state_bins.map_or(0, |b| b.len() + 1);
        if tokens > self.max_tokens {
            return Err(Error::PromptTooLong {
                tokens,
                limit: self.max_tokens,
            });
        }
        out.clear();
        out.push(self.bos);
        out.extend(words(text).map(|w| self.ids[w]));
        if state_bins.is_some() {
            out.push(self.state);
            out.extend(bins.iter().map(|&b| self.state_offset + b.max(0)));
        }
        out.push(self.action);
        Ok(())
    }

    fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    fn vocabulary(&self) -> usize {
        self.state_offset as usize + BINS
    }

    fn pad_id(&self) -> i32 {
        self.pad
    }

    fn digest(&self) -> String {
        self.digest.clone()
    }
}
