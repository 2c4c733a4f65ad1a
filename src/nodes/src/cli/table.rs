//! Tables for a terminal and for a page.

use std::fmt::Write as _;

/// Columns as wide as their widest cell, two spaces between them.
pub fn plain(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut all: Vec<Vec<String>> = vec![head.iter().map(|h| h.to_string()).collect()];
    all.extend(rows);
    let width = |column: usize| {
        all.iter()
            .filter_map(|r| r.get(column))
            .map(|c| c.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    for row in &all {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a String cannot fail.
            let _ = write!(line, "{cell:<width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A Markdown table.
pub fn markdown(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut out = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|c| c.replace('|', "\\|")).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

/// Bytes for a person: `4.3 MB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["B", "kB", "MB", "GB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{n} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_not_padded() {
        let text = plain(&["a", "name"], [vec!["10".into(), "x".into()]]);
        assert_eq!(text, "a   name\n10  x\n");
    }

    #[test]
    fn bytes_use_decimal_units() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(4_300_000), "4.3 MB");
    }

    #[test]
    fn a_bar_in_a_cell_does_not_end_it() {
        assert!(markdown(&["h"], [vec!["a | b".into()]]).contains("a \\| b"));
    }
}
