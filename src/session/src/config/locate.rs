//! Finds the line of a key in block-style YAML. Best effort: flow-style keys are located at their parent's line.

use std::collections::HashMap;

/// Nesting below which nothing is looked for: the table's keys are not half as deep, and texts may look like any depth.
const MAX_DEPTH: usize = 12;

/// Line (from 1) of every key path that stands in block style.
pub(crate) fn key_lines(text: &str) -> HashMap<String, usize> {
    struct Level {
        indent: usize,
        path: String,
        is_item: bool,
        items: usize,
    }
    let mut lines = HashMap::new();
    let mut stack: Vec<Level> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let mut indent = line.len() - trimmed.len();
        let mut rest = trimmed;
        while let Some(after) =
            rest.strip_prefix("- ")
                .or(if rest == "-" { Some("") } else { None })
        {
            // A list may stand at the indent of its own key.
            while stack
                .last()
                .is_some_and(|l| l.indent > indent || (l.indent == indent && l.is_item))
            {
                stack.pop();
            }
            let path = match stack.last_mut() {
                Some(parent) => {
                    parent.items += 1;
                    format!("{}[{}]", parent.path, parent.items - 1)
                }
                None => break,
            };
            if stack.len() >= MAX_DEPTH {
                break;
            }
            lines.entry(path.clone()).or_insert(number + 1);
            stack.push(Level {
                indent,
                path,
                is_item: true,
                items: 0,
            });
            let inner = after.trim_start();
            indent += rest.len() - inner.len();
            rest = inner;
        }
        let Some(colon) = rest.find(':') else {
            continue;
        };
        let key = rest[..colon].trim().trim_matches(['"', '\'']);
        while stack.last().is_some_and(|l| l.indent >= indent) {
            stack.pop();
        }
        if stack.len() >= MAX_DEPTH {
            continue;
        }
        let path = match stack.last() {
            Some(parent) => format!("{}.{key}", parent.path),
            None => key.to_string(),
        };
        lines.entry(path.clone()).or_insert(number + 1);
        stack.push(Level {
            indent,
            path,
            is_item: false,
            items: 0,
        });
    }
    lines
}

/// The line of `path` or of its nearest ancestor.
pub(crate) fn line_of(lines: &HashMap<String, usize>, path: &str) -> Option<usize> {
    let mut path = path;
    loop {
        if let Some(line) = lines.get(path) {
            return Some(*line);
        }
        path = &path[..path.rfind(['.', '['])?];
    }
}
